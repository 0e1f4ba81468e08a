"""One file per method: a declaration without torch, a server half and a silo half."""
