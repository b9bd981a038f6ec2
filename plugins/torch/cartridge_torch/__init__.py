"""Text embeddings by sentence-transformers, as a cartridge."""
