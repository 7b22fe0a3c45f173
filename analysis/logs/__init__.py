"""From event files to tables: reading, merging, caching, and the runs of other systems."""
