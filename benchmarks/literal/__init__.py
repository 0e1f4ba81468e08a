"""Three methods once more, straight from their papers' pseudo-code, to tell a method's faults from ours."""
