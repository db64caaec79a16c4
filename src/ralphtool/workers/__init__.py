"""The machines that carry out orders: each has clones of the projects, and boxes like those of a local run."""
