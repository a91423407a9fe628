"""What may become of a job, as data: each end in each form of job, at each place where a user's function is called."""
