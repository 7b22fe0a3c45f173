"""The ways that messages can take to the mean of the workers' gradients, one file each."""
