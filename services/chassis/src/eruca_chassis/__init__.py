"""What every service needs and none owns; no word of messaging occurs in here."""
