"""One registry for local AI models."""
