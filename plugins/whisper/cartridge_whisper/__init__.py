"""Speech to text for cartridge, on openai-whisper."""
