from .labelled_photos import (
    CheckReport as CheckReport,
    check_photos as check_photos,
)
