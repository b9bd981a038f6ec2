"""Media for cartridge's plugins: what a caller gives, decoded by one stated rule."""
