"""Makes the committed data of reference/."""
