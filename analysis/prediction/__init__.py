"""The cost model: step times on more workers and other links than were measured."""
