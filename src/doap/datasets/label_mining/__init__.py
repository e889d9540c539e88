"""Label mining: similar patches of one sequence ignore each other (paper, section 4.2 and appendix C)."""
