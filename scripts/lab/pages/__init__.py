"""What keeps the pages true: their excerpts, links, commands and what these print."""
