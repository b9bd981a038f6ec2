"""Native libraries that export the Cartridge ABI, as cartridges; `plugin` holds the hooks."""
