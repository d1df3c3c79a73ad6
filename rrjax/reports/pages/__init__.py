"""HTML pages about reports: their answers, what ε means, and how they were made."""
