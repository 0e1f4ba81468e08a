"""A web page on which jobs can be watched: `view` makes its data, `server` serves them, `static/` shows them."""
