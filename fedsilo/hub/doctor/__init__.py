"""What an institution can find out by itself when it is not heard of: one line for each thing that must hold."""
