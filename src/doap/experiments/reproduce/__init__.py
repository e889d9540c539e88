"""Tables and figures of the paper: what each needs, and one function that trains, evaluates and draws it."""
