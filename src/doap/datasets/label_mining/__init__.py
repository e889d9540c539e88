"""Label mining: ignore look-alike patches of one sequence (paper, section 4.2 and appendix C)."""
