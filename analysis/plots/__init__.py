"""The panels and figures themselves, and the style of how they look."""
