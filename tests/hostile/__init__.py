"""What is wrong with arguments, files, options and requests: each public entry gets it, and answers with an error."""
