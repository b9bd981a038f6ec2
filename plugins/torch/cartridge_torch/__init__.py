"""Embeddings of texts and pictures, and captions, on torch, as cartridges."""
