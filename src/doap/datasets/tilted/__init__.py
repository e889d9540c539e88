"""Sets of tilted views: photos seen from the side, with the frames that a detector finds there."""
