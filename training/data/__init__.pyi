from .augmentations import (
    AUGMENTATIONS as AUGMENTATIONS,
)
from .batches import (
    TrainingBatches as TrainingBatches,
    evaluation_batches as evaluation_batches,
    training_batches as training_batches,
)
from .examples import (
    Examples as Examples,
)
from .labelled_images import (
    Source as Source,
)
from .sources import (
    open_source as open_source,
)
from .spec import (
    DataSpec as DataSpec,
)
from .tfrecords import (
    write_records as write_records,
)
