"""How long things take, for people."""


def clock(seconds: float) -> str:
    """Returns a time as "7 s", "12:05" or "3:07:00"."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02}:{seconds:02}"
    return f"{minutes}:{seconds:02}" if minutes else f"{seconds} s"
