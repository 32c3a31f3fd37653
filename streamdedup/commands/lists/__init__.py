"""What the commands `streamdedup lists` do with a worker's configuration: change a list, and ask what is in force."""
