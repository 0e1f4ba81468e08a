"""Files on disks that may be full, torn, or somebody else's: written whole, read with care, held by one process."""
