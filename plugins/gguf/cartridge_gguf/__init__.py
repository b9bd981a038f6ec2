"""GGUF models by llama.cpp: text, vision, embeddings and model information, as cartridges."""
