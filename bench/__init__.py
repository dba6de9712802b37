"""Speed, measured as ratios to a raw limit taken in the same run; see README.md."""
