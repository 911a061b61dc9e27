"""Text that people write and read: parsing and rendering."""
