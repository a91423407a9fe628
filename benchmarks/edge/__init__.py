"""edge: producers on the other side of a slow link, who send by one connection what took 54 before."""
