"""Commands of this feature, one file each."""
