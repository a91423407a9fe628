"""`shardq.django`, in an environment of its own with Django 6, which `make parts` makes."""
