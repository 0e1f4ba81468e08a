"""The children as data: what runs where, with which rights and volumes."""
