"""The words of the shell in Python; docs/verbs_stub.py writes this file."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from keras_vit.classifier import Classifier
from keras_vit.commands.push import Pushed
from keras_vit.configs import BiTConfig, ViTConfig
from keras_vit.export import ExportReport
from keras_vit.training.data.in_memory import Labelled
from keras_vit.training.data.spec import DataSpec
from keras_vit.training.evaluation.few_shot import FewShotReport
from keras_vit.training.evaluation.imagenet import ImageNetAccuracy
from keras_vit.training.evaluation.reports import EvaluationReport
from keras_vit.training.run.finetune import Finished
from keras_vit.training.run.sweep_result import SweepResult
from keras_vit.training.trust import CheckReport, Comparison

def check(
    photos: Labelled | DataSpec,
    *,
    data_dir: str | os.PathLike | None = None,
    exclude: str | os.PathLike[str] | Mapping[str, str] | Sequence[str] = (),
    follow_symlinks: bool = False,
    task: Literal["multiclass", "multilabel"] | None = None,
    split: str | os.PathLike[str] | Mapping[str, str] | Sequence[str] = (),
    labels: str | os.PathLike[str] | Mapping[str, str] | Sequence[str] = (),
    group_by: str | None = None,
    path_column: str | None = None,
    label_column: str | None = None,
    label_separator: str | None = None,
    skip_unlabelled: bool = False,
    bit_depth: int | None = None,
    folders: Literal["classes", "parts", "innermost"] | None = None,
    only: str | None = None,
    label_by: str | None = None,
    weights: str | os.PathLike[str] | Classifier = "imagenet21k",
    model: str | None = None,
    image_size: int | tuple[int, int] | None = None,
    batch_size: int = 32,
    output: str | os.PathLike[str] = "check",
    log: Callable[[str], object] | None = ...,
) -> CheckReport:
    r"""Check labelled photos before training: labels, copies, shortcuts, unreadable files.

    It changes and deletes nothing. check.html shows the findings and saves labels.csv and
    exclude.txt; findings.csv has them for programs; split.csv keeps copies and groups together, and
    groups.csv names the group of each photo.

    As `keras-vit check`; docs/check.md shows it.

    Args:
        photos: a folder {train,test}/CLASS/* or CLASS/*, a CSV file of paths and labels,
            tfrecords:FOLDER or tfds:NAME
        data_dir: the folder of tfds, or of the relative paths in a CSV file (default:
            None)
        exclude: images to leave out; the flag takes a file that lists them, one a line
            (default: ())
        follow_symlinks: read images that symbolic links lead to outside of the data's
            folder (default: False)
        task: one class for each image, or multi-label (default: as the data show it)
        split: a CSV file path,split with the part of each image, by its path relative to
            the data (default: ())
        labels: a CSV file path,label with other labels for some images; paths are
            relative to the data (default: ())
        group_by: keep images of a group in the same part: a column of the CSV file, or a
            regular expression whose first capture group, or match, in the path relative
            to the data is the group (default: None)
        path_column: the column of paths in a CSV file (default: path)
        label_column: the column of labels, or the columns of 0 and 1 that are the
            classes, with commas between (default: label)
        label_separator: what separates the labels of an image in a table's cell, such as
            ',' or '|' (default: ;)
        skip_unlabelled: leave out the rows of a table without a label (default: False)
        bit_depth: bits of the values of 16-bit PNG and TIFF files, whose high 8 are read
            (default: 8, 10, 12, 14 or 16, as the largest value needs)
        folders: what the folders in the data folder are: classes, even one called train;
            parts, also with names such as Training; or innermost, where the folder that
            an image lies in is its class, at whatever depth (default: as their names show
            it)
        only: of a data folder, read the images alone whose name matches a pattern, such
            as '*.jpg' (default: all images)
        label_by: of a data folder, a regular expression whose first capture group, or
            match, in the path relative to the data is the class, such as '_(\w+)\.' for
            12_cat.jpg (default: the folder of an image is its class)
        weights: the weights whose features are used, best those that will be fine-tuned:
            imagenet21k, a name of the catalogue, a file, or a classifier's folder
            (default: 'imagenet21k')
        model: a model's name, see keras-vit models (default: the model of the weights, or
            ViT-B/16)
        image_size: what the model sees of a photo, 384 or 384x512 (height x width)
            (default: the weights')
        batch_size: images at once (default: 32)
        output: the folder of the files (default: 'check')
        log: receives each line about the work while it goes on; None shows neither lines
            nor progress (default: print)

    Returns:
        CheckReport

    Raises:
        ValueError: If a value is wrong or something does not fit.
        TypeError: If an argument is unknown or missing.
    """

def finetune(
    data: Labelled | DataSpec | None,
    output: str | os.PathLike,
    *,
    data_dir: str | os.PathLike | None = None,
    holdout: float = 0.2,
    strict: bool = False,
    exclude: str | os.PathLike[str] | Mapping[str, str] | Sequence[str] = (),
    split_seed: int | None = None,
    test: bool = True,
    follow_symlinks: bool = False,
    task: Literal["multiclass", "multilabel"] | None = None,
    class_names: Sequence[str] | None = None,
    calibration: float = 0.0,
    split: str | os.PathLike[str] | Mapping[str, str] | Sequence[str] = (),
    labels: str | os.PathLike[str] | Mapping[str, str] | Sequence[str] = (),
    group_by: str | None = None,
    path_column: str | None = None,
    label_column: str | None = None,
    label_separator: str | None = None,
    skip_unlabelled: bool = False,
    bit_depth: int | None = None,
    folders: Literal["classes", "parts", "innermost"] | None = None,
    only: str | None = None,
    label_by: str | None = None,
    copies: Literal["together", "ignore"] = "together",
    groups: str | os.PathLike[str] | Mapping[str, str] | Sequence[str] = (),
    checked: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    resume: bool = False,
    command: str = "",
    callbacks: Sequence[Any] = (),
    recipe: str | None = None,
    model: str | ViTConfig | BiTConfig | None = None,
    image_size: int | tuple[int, int] | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    batch_size: int = 512,
    accumulate: int | None = None,
    optimizer: Literal["sgd", "adam", "muon"] = "sgd",
    learning_rate: float | None = None,
    warmup_steps: int | None = None,
    decay: Literal["cosine", "linear", "rsqrt", "constant"] = "cosine",
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    weight_decay_times: Literal["learning_rate", "schedule"] = "learning_rate",
    global_clipnorm: float | None = 1.0,
    layer_decay: float = 1.0,
    ema_momentum: float | None = None,
    loss: Literal["softmax", "sigmoid"] | None = None,
    head_bias: float = 0.0,
    label_smoothing: float = 0.0,
    class_weight: Literal["balanced"] | None = None,
    dropout_rate: float = 0.0,
    stochastic_depth_rate: float = 0.0,
    augmentation: str | None = None,
    flip: Literal["never", "horizontal", "both"] | None = None,
    mixup: float | None = None,
    layers: Sequence[str | dict | Any] = (),
    evaluation: Literal[
        "resize",
        "resize_small_central_crop",
        "resize_central_crop",
        "huggingface",
        "torchvision",
        "keras_hub",
    ]
    | None = None,
    validation: float | None = None,
    keep: Literal["best", "last"] = "best",
    evaluate_every: int | None = None,
    patience: int | None = None,
    samples: str | int | None = None,
    seed: int = 0,
    precision: Literal["auto", "float32", "mixed_bfloat16", "mixed_float16"] = "auto",
    remat: bool = False,
    strategy: Literal["auto", "cpu", "mirrored", "multiworker", "tpu"] | None = None,
    jit_compile: bool | None = None,
    steps_per_execution: int = 1,
    weights: str | os.PathLike[str] | None = "imagenet21k",
    head: Literal["keep", "extend", "new"] | None = None,
    head_start: Literal["probe", "zero"] = "probe",
    replay: str | os.PathLike[str] | None = None,
    replay_share: float = 0.2,
    normalization: Literal["half", "imagenet"] | None = None,
    gelu: Literal["tanh", "exact", "quick", "relu", "swiglu"] | None = None,
    num_heads: int | None = None,
    train: Literal["all", "head", "lora"] = "all",
    lora_rank: int = 8,
    teacher: str | os.PathLike[str] | None = None,
    distillation: Literal["soft", "hard"] = "soft",
    distillation_weight: float = 0.5,
    temperature: float = 3.0,
    max_error: float | None = None,
    log: Callable[[str], object] | None = ...,
) -> Finished:
    r"""Fine-tune a pre-trained model on your own images.

    As `keras-vit finetune`; docs/finetune.md shows it.

    Args:
        data: a folder {train,test}/CLASS/* or CLASS/*, a CSV file of paths and labels,
            tfrecords:FOLDER or tfds:NAME; the flag itself may be left out (default: None)
        output: the classifier's folder to write; until the end everything is in
            OUTPUT.partial
        data_dir: the folder of tfds, or of the relative paths in a CSV file (default:
            None)
        holdout: share of the images for testing where the data have no test part; 0 for
            none (default: 0.2)
        strict: stop at an image that cannot be read (default: False)
        exclude: images to leave out; the flag takes a file that lists them, one a line
            (default: ())
        split_seed: seed of the choice of images that are held out (default: the run's
            seed)
        test: keep the test part (default: True)
        follow_symlinks: read images that symbolic links lead to outside of the data's
            folder (default: False)
        task: one class for each image, or multi-label (default: as the data show it)
        class_names: names of the classes of arrays, in the order of their numbers
            (default: None)
        calibration: share of the training images that is held out for calibration where
            the data have no such part; 0 for none, or 0.1 with --max-error (default: 0.0)
        split: a CSV file path,split with the part of each image, by its path relative to
            the data (default: ())
        labels: a CSV file path,label with other labels for some images; paths are
            relative to the data (default: ())
        group_by: keep images of a group in the same part: a column of the CSV file, or a
            regular expression whose first capture group, or match, in the path relative
            to the data is the group (default: None)
        path_column: the column of paths in a CSV file (default: path)
        label_column: the column of labels, or the columns of 0 and 1 that are the
            classes, with commas between (default: label)
        label_separator: what separates the labels of an image in a table's cell, such as
            ',' or '|' (default: ;)
        skip_unlabelled: leave out the rows of a table without a label (default: False)
        bit_depth: bits of the values of 16-bit PNG and TIFF files, whose high 8 are read
            (default: 8, 10, 12, 14 or 16, as the largest value needs)
        folders: what the folders in the data folder are: classes, even one called train;
            parts, also with names such as Training; or innermost, where the folder that
            an image lies in is its class, at whatever depth (default: as their names show
            it)
        only: of a data folder, read the images alone whose name matches a pattern, such
            as '*.jpg' (default: all images)
        label_by: of a data folder, a regular expression whose first capture group, or
            match, in the path relative to the data is the class, such as '_(\w+)\.' for
            12_cat.jpg (default: the folder of an image is its class)
        copies: whether photos that show one thing (copies and bursts) are kept in the
            same part, and counted together by intervals (default: 'together')
        groups: a CSV file path,group, such as groups.csv of keras-vit check: images of a
            group are kept in the same part; an image without a row is a group of one
            (default: ())
        checked: a folder of keras-vit check: its parts and groups, and the decisions that
            its page saved (labels.csv and exclude.txt, moved there) (default: None)
        overwrite: replace an existing output (default: False)
        resume: continue a stopped run; only --output is needed then (default: False)
        command: the command to record in recipe.json, by which an unfinished run
            continues too (default: '')
        callbacks: Keras callbacks for fit, which is called once with one epoch of all
            steps (default: ())
        recipe: a recipe of the paper; other options win over it (see keras-vit recipes)
            (default: none)
        model: a model's name, see keras-vit models; in Python also a config (default: the
            model of the weights, or ViT-B/16)
        image_size: 384, 384x512 for height x width, or auto: larger than the weights'
            size where a linear probe of larger images is clearly better and a step takes
            at most 8 times as long (default: auto; 384 for weights of 224 pixels)
        steps: optimizer steps (default: 500 with fewer than 20,000 images, 10,000 with
            fewer than 500,000, else 20,000)
        epochs: how often each training image is seen (default: by the steps)
        batch_size: images of an optimizer step (default: 512)
        accumulate: micro-batches that the batch of a step is divided into, which change
            no result; Keras's gradient_accumulation_steps multiplies the batch instead
            (default: as few as the memory allows)
        optimizer: the optimizer (default: 'sgd')
        learning_rate: the highest learning rate, after warm-up (default: 0.03, or 0.01
            where the head of the weights is kept)
        warmup_steps: steps of linear warm-up (default: 500, or a fifth of a short run)
        decay: decay of the learning rate after warm-up (default: 'cosine')
        momentum: momentum of the optimizers sgd and muon (default: 0.9)
        weight_decay: decoupled weight decay, of kernels alone (default: 0.0)
        weight_decay_times: factor of the weight decay: the learning rate, as in the paper
            and Keras, or its schedule alone (a share of the highest), as in big_vision
            (default: 'learning_rate')
        global_clipnorm: largest norm of all gradients together; 0 does not clip (default:
            1.0)
        layer_decay: ratio of a layer's learning rate to the next layer's, such as 0.75
            (default: 1.0)
        ema_momentum: factor of Polyak averaging, 0.9999 in the paper; the averages are
            kept in place of the weights (default: no averaging)
        loss: cross-entropy; sigmoid sums over the classes (default: softmax, or sigmoid
            for multi-label data)
        head_bias: logit of every class at the start: with the loss sigmoid about -10 for
            21,000 classes, -6.9 for 1000 (default: 0.0)
        label_smoothing: share of the label that is spread over all classes (default: 0.0)
        class_weight: weights of the classes in the loss: balanced, so that each class
            weighs the same (default: none)
        dropout_rate: share of units dropped (default: 0.0)
        stochastic_depth_rate: share of examples that skip a part of the last block, fewer
            the blocks before it; 0.1 in AugReg (default: 0.0)
        augmentation: augmentation of training images: inception_crop,
            resize_small_random_crop, padded_crop, jitter, flip, none, or AugReg's light1,
            light2, medium1, medium2, strong1, strong2 (default: none with fewer than
            20,000 images, else inception_crop)
        flip: how training images are flipped at random, with every augmentation: never
            where left and right differ (text, shoes), both where no side is the upper one
            (cells, aerial images) (default: horizontal, but never with the augmentations
            jitter and none)
        mixup: parameter of mixup's beta distribution, 0 for none (default: the
            augmentation's own)
        layers: image layers of keras.layers that are applied after the augmentation, with
            or without arguments: RandomErasing "RandomRotation(0.1)" CutMix; in Python
            also layer objects (default: ())
        evaluation: how an image gets its size in evaluation (default: as for the weights,
            or resize)
        validation: share of the training images that chooses the best weights; 0 keeps
            the last (default: 0.1, 0.02 or 0.01 by the number of images)
        keep: the weights that are kept: the best of all validations, or the last ones
            (default: 'best')
        evaluate_every: optimizer steps between two validations (default: a tenth of the
            run)
        patience: stop after this many validations in a row without a better one (default:
            never)
        samples: photos that travel with the classifier and its exports, without metadata
            and at the model's size: a number of the test part's, or none (default: 8 of
            the test part, none where the data have no test part)
        seed: seed of weights, image order, augmentation and dropout (default: 0)
        precision: type of the computation; auto is mixed_bfloat16 on a GPU that has it
            (compute capability 8.0), float32 elsewhere (default: 'auto')
        remat: recompute activations in the backward pass: less memory, about a third more
            time (default: False)
        strategy: where to run: one device, all GPUs, workers of TF_CONFIG (JAX: see
            --coordinator), a TPU, or the best available (default: the first GPU, or the
            CPU)
        jit_compile: compile with XLA, or not (default: where Keras would)
        steps_per_execution: optimizer steps that are run at once, which saves time on
            TPUs (default: 1)
        weights: the weights to start from: imagenet21k, imagenet, a name of the
            catalogue, a file, a classifier's folder, or none for random values (default:
            'imagenet21k')
        head: keep the rows of the weights' head for classes of the same name; extend it,
            so that all classes of the weights stay in addition to the data's; or a new
            head of zeros (default: keep where the weights name a class of the data)
        head_start: what a new head begins with: a linear probe, solved from the features
            of the training images, if it is better than the rows of the weights; or
            zeros, as in the paper (default: 'probe')
        replay: images of the classes that the weights know, which are trained on again so
            that they are not forgotten; as --data (default: none)
        replay_share: share of the images of each step that are replayed (default: 0.2)
        normalization: range of the pixels: half is -1 to 1, imagenet ImageNet's mean and
            standard deviation (default: as in the weights)
        gelu: form of GELU, where the weights do not state it (default: as in the weights)
        num_heads: attention heads, where the weights do not show them (default: as in the
            weights)
        train: all; the head alone, a linear probe; or lora, the head and small additions
            to the attention (default: 'all')
        lora_rank: columns that LoRA adds for each head (default: 8)
        teacher: a classifier to learn from in addition to the labels: its folder, or
            cifar10 (default: none)
        distillation: what is learned from the teacher: its probabilities, or its class
            (default: 'soft')
        distillation_weight: share of the teacher in the loss; the labels have the rest
            (default: 0.5)
        temperature: what the logits of both are divided by in the distillation soft
            (default: 3.0)
        max_error: largest share of wrong answers, such as 0.02; other images are answered
            with unknown (default: none: without a decision)
        log: receives each line about the work while it goes on; None shows neither lines
            nor progress (default: print)

    Returns:
        Finished

    Raises:
        ValueError: If a value is wrong or something does not fit.
        TypeError: If an argument is unknown or missing.
    """

def sweep(
    data: Labelled | DataSpec | None,
    output: str | os.PathLike[str],
    *,
    data_dir: str | os.PathLike | None = None,
    holdout: float = 0.2,
    strict: bool = False,
    exclude: str | os.PathLike[str] | Mapping[str, str] | Sequence[str] = (),
    test: bool = True,
    follow_symlinks: bool = False,
    task: Literal["multiclass", "multilabel"] | None = None,
    class_names: Sequence[str] | None = None,
    calibration: float = 0.0,
    split: str | os.PathLike[str] | Mapping[str, str] | Sequence[str] = (),
    labels: str | os.PathLike[str] | Mapping[str, str] | Sequence[str] = (),
    group_by: str | None = None,
    path_column: str | None = None,
    label_column: str | None = None,
    label_separator: str | None = None,
    skip_unlabelled: bool = False,
    bit_depth: int | None = None,
    folders: Literal["classes", "parts", "innermost"] | None = None,
    only: str | None = None,
    label_by: str | None = None,
    copies: Literal["together", "ignore"] = "together",
    groups: str | os.PathLike[str] | Mapping[str, str] | Sequence[str] = (),
    checked: str | os.PathLike[str] | None = None,
    learning_rates: Sequence[float] | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    recipe: str | None = None,
    model: str | ViTConfig | BiTConfig | None = None,
    image_size: int | tuple[int, int] | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    batch_size: int = 512,
    accumulate: int | None = None,
    optimizer: Literal["sgd", "adam", "muon"] = "sgd",
    warmup_steps: int | None = None,
    decay: Literal["cosine", "linear", "rsqrt", "constant"] = "cosine",
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    weight_decay_times: Literal["learning_rate", "schedule"] = "learning_rate",
    global_clipnorm: float | None = 1.0,
    layer_decay: float = 1.0,
    ema_momentum: float | None = None,
    loss: Literal["softmax", "sigmoid"] | None = None,
    head_bias: float = 0.0,
    label_smoothing: float = 0.0,
    class_weight: Literal["balanced"] | None = None,
    dropout_rate: float = 0.0,
    stochastic_depth_rate: float = 0.0,
    augmentation: str | None = None,
    flip: Literal["never", "horizontal", "both"] | None = None,
    mixup: float | None = None,
    layers: Sequence[str | dict | Any] = (),
    evaluation: Literal[
        "resize",
        "resize_small_central_crop",
        "resize_central_crop",
        "huggingface",
        "torchvision",
        "keras_hub",
    ]
    | None = None,
    validation: float | None = None,
    keep: Literal["best", "last"] = "best",
    evaluate_every: int | None = None,
    samples: str | int | None = None,
    precision: Literal["auto", "float32", "mixed_bfloat16", "mixed_float16"] = "auto",
    remat: bool = False,
    strategy: Literal["auto", "cpu", "mirrored", "multiworker", "tpu"] | None = None,
    jit_compile: bool | None = None,
    steps_per_execution: int = 1,
    weights: str | os.PathLike[str] | None = "imagenet21k",
    head: Literal["keep", "extend", "new"] | None = None,
    head_start: Literal["probe", "zero"] = "probe",
    replay: str | os.PathLike[str] | None = None,
    replay_share: float = 0.2,
    normalization: Literal["half", "imagenet"] | None = None,
    gelu: Literal["tanh", "exact", "quick", "relu", "swiglu"] | None = None,
    num_heads: int | None = None,
    train: Literal["all", "head", "lora"] = "all",
    lora_rank: int = 8,
    teacher: str | os.PathLike[str] | None = None,
    distillation: Literal["soft", "hard"] = "soft",
    distillation_weight: float = 0.5,
    temperature: float = 3.0,
    max_error: float | None = None,
    log: Callable[[str], object] | None = ...,
) -> SweepResult:
    r"""Fine-tune with several learning rates, then the best with several seeds.

    As `keras-vit sweep`; docs/training.md shows it.

    Args:
        data: a folder {train,test}/CLASS/* or CLASS/*, a CSV file of paths and labels,
            tfrecords:FOLDER or tfds:NAME; the flag itself may be left out (default: None)
        output: the folder of all runs; the same command again continues a stopped sweep
        data_dir: the folder of tfds, or of the relative paths in a CSV file (default:
            None)
        holdout: share of the images for testing where the data have no test part; 0 for
            none (default: 0.2)
        strict: stop at an image that cannot be read (default: False)
        exclude: images to leave out; the flag takes a file that lists them, one a line
            (default: ())
        test: keep the test part (default: True)
        follow_symlinks: read images that symbolic links lead to outside of the data's
            folder (default: False)
        task: one class for each image, or multi-label (default: as the data show it)
        class_names: names of the classes of arrays, in the order of their numbers
            (default: None)
        calibration: share of the training images that is held out for calibration where
            the data have no such part; 0 for none, or 0.1 with --max-error (default: 0.0)
        split: a CSV file path,split with the part of each image, by its path relative to
            the data (default: ())
        labels: a CSV file path,label with other labels for some images; paths are
            relative to the data (default: ())
        group_by: keep images of a group in the same part: a column of the CSV file, or a
            regular expression whose first capture group, or match, in the path relative
            to the data is the group (default: None)
        path_column: the column of paths in a CSV file (default: path)
        label_column: the column of labels, or the columns of 0 and 1 that are the
            classes, with commas between (default: label)
        label_separator: what separates the labels of an image in a table's cell, such as
            ',' or '|' (default: ;)
        skip_unlabelled: leave out the rows of a table without a label (default: False)
        bit_depth: bits of the values of 16-bit PNG and TIFF files, whose high 8 are read
            (default: 8, 10, 12, 14 or 16, as the largest value needs)
        folders: what the folders in the data folder are: classes, even one called train;
            parts, also with names such as Training; or innermost, where the folder that
            an image lies in is its class, at whatever depth (default: as their names show
            it)
        only: of a data folder, read the images alone whose name matches a pattern, such
            as '*.jpg' (default: all images)
        label_by: of a data folder, a regular expression whose first capture group, or
            match, in the path relative to the data is the class, such as '_(\w+)\.' for
            12_cat.jpg (default: the folder of an image is its class)
        copies: whether photos that show one thing (copies and bursts) are kept in the
            same part, and counted together by intervals (default: 'together')
        groups: a CSV file path,group, such as groups.csv of keras-vit check: images of a
            group are kept in the same part; an image without a row is a group of one
            (default: ())
        checked: a folder of keras-vit check: its parts and groups, and the decisions that
            its page saved (labels.csv and exclude.txt, moved there) (default: None)
        learning_rates: the rates to try (default: the recipe's, else 0.001 0.003 0.01
            0.03)
        seeds: seeds of the final runs (default: (0, 1, 2))
        recipe: a recipe of the paper; other options win over it (see keras-vit recipes)
            (default: none)
        model: a model's name, see keras-vit models; in Python also a config (default: the
            model of the weights, or ViT-B/16)
        image_size: 384, 384x512 for height x width, or auto: larger than the weights'
            size where a linear probe of larger images is clearly better and a step takes
            at most 8 times as long (default: auto; 384 for weights of 224 pixels)
        steps: optimizer steps (default: 500 with fewer than 20,000 images, 10,000 with
            fewer than 500,000, else 20,000)
        epochs: how often each training image is seen (default: by the steps)
        batch_size: images of an optimizer step (default: 512)
        accumulate: micro-batches that the batch of a step is divided into, which change
            no result; Keras's gradient_accumulation_steps multiplies the batch instead
            (default: as few as the memory allows)
        optimizer: the optimizer (default: 'sgd')
        warmup_steps: steps of linear warm-up (default: 500, or a fifth of a short run)
        decay: decay of the learning rate after warm-up (default: 'cosine')
        momentum: momentum of the optimizers sgd and muon (default: 0.9)
        weight_decay: decoupled weight decay, of kernels alone (default: 0.0)
        weight_decay_times: factor of the weight decay: the learning rate, as in the paper
            and Keras, or its schedule alone (a share of the highest), as in big_vision
            (default: 'learning_rate')
        global_clipnorm: largest norm of all gradients together; 0 does not clip (default:
            1.0)
        layer_decay: ratio of a layer's learning rate to the next layer's, such as 0.75
            (default: 1.0)
        ema_momentum: factor of Polyak averaging, 0.9999 in the paper; the averages are
            kept in place of the weights (default: no averaging)
        loss: cross-entropy; sigmoid sums over the classes (default: softmax, or sigmoid
            for multi-label data)
        head_bias: logit of every class at the start: with the loss sigmoid about -10 for
            21,000 classes, -6.9 for 1000 (default: 0.0)
        label_smoothing: share of the label that is spread over all classes (default: 0.0)
        class_weight: weights of the classes in the loss: balanced, so that each class
            weighs the same (default: none)
        dropout_rate: share of units dropped (default: 0.0)
        stochastic_depth_rate: share of examples that skip a part of the last block, fewer
            the blocks before it; 0.1 in AugReg (default: 0.0)
        augmentation: augmentation of training images: inception_crop,
            resize_small_random_crop, padded_crop, jitter, flip, none, or AugReg's light1,
            light2, medium1, medium2, strong1, strong2 (default: none with fewer than
            20,000 images, else inception_crop)
        flip: how training images are flipped at random, with every augmentation: never
            where left and right differ (text, shoes), both where no side is the upper one
            (cells, aerial images) (default: horizontal, but never with the augmentations
            jitter and none)
        mixup: parameter of mixup's beta distribution, 0 for none (default: the
            augmentation's own)
        layers: image layers of keras.layers that are applied after the augmentation, with
            or without arguments: RandomErasing "RandomRotation(0.1)" CutMix; in Python
            also layer objects (default: ())
        evaluation: how an image gets its size in evaluation (default: as for the weights,
            or resize)
        validation: share of the training images that chooses the best weights; 0 keeps
            the last (default: 0.1, 0.02 or 0.01 by the number of images)
        keep: the weights that are kept: the best of all validations, or the last ones
            (default: 'best')
        evaluate_every: optimizer steps between two validations (default: a tenth of the
            run)
        samples: photos that travel with the classifier and its exports, without metadata
            and at the model's size: a number of the test part's, or none (default: 8 of
            the test part, none where the data have no test part)
        precision: type of the computation; auto is mixed_bfloat16 on a GPU that has it
            (compute capability 8.0), float32 elsewhere (default: 'auto')
        remat: recompute activations in the backward pass: less memory, about a third more
            time (default: False)
        strategy: where to run: one device, all GPUs, workers of TF_CONFIG (JAX: see
            --coordinator), a TPU, or the best available (default: the first GPU, or the
            CPU)
        jit_compile: compile with XLA, or not (default: where Keras would)
        steps_per_execution: optimizer steps that are run at once, which saves time on
            TPUs (default: 1)
        weights: the weights to start from: imagenet21k, imagenet, a name of the
            catalogue, a file, a classifier's folder, or none for random values (default:
            'imagenet21k')
        head: keep the rows of the weights' head for classes of the same name; extend it,
            so that all classes of the weights stay in addition to the data's; or a new
            head of zeros (default: keep where the weights name a class of the data)
        head_start: what a new head begins with: a linear probe, solved from the features
            of the training images, if it is better than the rows of the weights; or
            zeros, as in the paper (default: 'probe')
        replay: images of the classes that the weights know, which are trained on again so
            that they are not forgotten; as --data (default: none)
        replay_share: share of the images of each step that are replayed (default: 0.2)
        normalization: range of the pixels: half is -1 to 1, imagenet ImageNet's mean and
            standard deviation (default: as in the weights)
        gelu: form of GELU, where the weights do not state it (default: as in the weights)
        num_heads: attention heads, where the weights do not show them (default: as in the
            weights)
        train: all; the head alone, a linear probe; or lora, the head and small additions
            to the attention (default: 'all')
        lora_rank: columns that LoRA adds for each head (default: 8)
        teacher: a classifier to learn from in addition to the labels: its folder, or
            cifar10 (default: none)
        distillation: what is learned from the teacher: its probabilities, or its class
            (default: 'soft')
        distillation_weight: share of the teacher in the loss; the labels have the rest
            (default: 0.5)
        temperature: what the logits of both are divided by in the distillation soft
            (default: 3.0)
        max_error: largest share of wrong answers, such as 0.02; other images are answered
            with unknown (default: none: without a decision)
        log: receives each line about the work while it goes on; None shows neither lines
            nor progress (default: print)

    Returns:
        SweepResult

    Raises:
        ValueError: If a value is wrong or something does not fit.
        TypeError: If an argument is unknown or missing.
    """

def pretrain(
    data: Labelled | DataSpec | None,
    output: str | os.PathLike,
    *,
    data_dir: str | os.PathLike | None = None,
    holdout: float = 0.2,
    strict: bool = False,
    exclude: str | os.PathLike[str] | Mapping[str, str] | Sequence[str] = (),
    split_seed: int | None = None,
    test: bool = True,
    follow_symlinks: bool = False,
    task: Literal["multiclass", "multilabel"] | None = None,
    class_names: Sequence[str] | None = None,
    calibration: float = 0.0,
    split: str | os.PathLike[str] | Mapping[str, str] | Sequence[str] = (),
    labels: str | os.PathLike[str] | Mapping[str, str] | Sequence[str] = (),
    group_by: str | None = None,
    path_column: str | None = None,
    label_column: str | None = None,
    label_separator: str | None = None,
    skip_unlabelled: bool = False,
    bit_depth: int | None = None,
    folders: Literal["classes", "parts", "innermost"] | None = None,
    only: str | None = None,
    label_by: str | None = None,
    copies: Literal["together", "ignore"] = "together",
    groups: str | os.PathLike[str] | Mapping[str, str] | Sequence[str] = (),
    checked: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    resume: bool = False,
    command: str = "",
    callbacks: Sequence[Any] = (),
    recipe: str | None = None,
    model: str | ViTConfig | BiTConfig | None = None,
    image_size: int | tuple[int, int] | None = (224, 224),
    steps: int | None = None,
    epochs: float | None = None,
    batch_size: int = 4096,
    accumulate: int | None = None,
    optimizer: Literal["sgd", "adam", "muon"] = "adam",
    learning_rate: float = 0.003,
    warmup_steps: int | None = None,
    decay: Literal["cosine", "linear", "rsqrt", "constant"] = "cosine",
    momentum: float = 0.9,
    weight_decay: float = 0.3,
    weight_decay_times: Literal["learning_rate", "schedule"] = "learning_rate",
    global_clipnorm: float | None = 1.0,
    layer_decay: float = 1.0,
    ema_momentum: float | None = None,
    loss: Literal["softmax", "sigmoid"] | None = None,
    head_bias: float = 0.0,
    label_smoothing: float = 0.0,
    class_weight: Literal["balanced"] | None = None,
    dropout_rate: float = 0.1,
    stochastic_depth_rate: float = 0.0,
    augmentation: str | None = "inception_crop",
    flip: Literal["never", "horizontal", "both"] | None = None,
    mixup: float | None = None,
    layers: Sequence[str | dict | Any] = (),
    evaluation: Literal[
        "resize",
        "resize_small_central_crop",
        "resize_central_crop",
        "huggingface",
        "torchvision",
        "keras_hub",
    ]
    | None = None,
    validation: float | None = None,
    keep: Literal["best", "last"] = "best",
    evaluate_every: int | None = None,
    patience: int | None = None,
    samples: str | int | None = None,
    seed: int = 0,
    precision: Literal["auto", "float32", "mixed_bfloat16", "mixed_float16"] = "auto",
    remat: bool = False,
    strategy: Literal["auto", "cpu", "mirrored", "multiworker", "tpu"] | None = None,
    jit_compile: bool | None = None,
    steps_per_execution: int = 1,
    objective: Literal["classes", "masked-patches"] = "classes",
    target: Literal["mean-color", "downsized", "patch"] = "mean-color",
    corruption: float = 0.5,
    log: Callable[[str], object] | None = ...,
) -> Finished:
    r"""Train a model from random weights.

    As `keras-vit pretrain`; docs/pretraining.md shows it.

    Args:
        data: a folder {train,test}/CLASS/* or CLASS/*, a CSV file of paths and labels,
            tfrecords:FOLDER or tfds:NAME; the flag itself may be left out (default: None)
        output: the classifier's folder to write; until the end everything is in
            OUTPUT.partial
        data_dir: the folder of tfds, or of the relative paths in a CSV file (default:
            None)
        holdout: share of the images for testing where the data have no test part; 0 for
            none (default: 0.2)
        strict: stop at an image that cannot be read (default: False)
        exclude: images to leave out; the flag takes a file that lists them, one a line
            (default: ())
        split_seed: seed of the choice of images that are held out (default: the run's
            seed)
        test: keep the test part (default: True)
        follow_symlinks: read images that symbolic links lead to outside of the data's
            folder (default: False)
        task: one class for each image, or multi-label (default: as the data show it)
        class_names: names of the classes of arrays, in the order of their numbers
            (default: None)
        calibration: share of the training images that is held out for calibration where
            the data have no such part; 0 for none, or 0.1 with --max-error (default: 0.0)
        split: a CSV file path,split with the part of each image, by its path relative to
            the data (default: ())
        labels: a CSV file path,label with other labels for some images; paths are
            relative to the data (default: ())
        group_by: keep images of a group in the same part: a column of the CSV file, or a
            regular expression whose first capture group, or match, in the path relative
            to the data is the group (default: None)
        path_column: the column of paths in a CSV file (default: path)
        label_column: the column of labels, or the columns of 0 and 1 that are the
            classes, with commas between (default: label)
        label_separator: what separates the labels of an image in a table's cell, such as
            ',' or '|' (default: ;)
        skip_unlabelled: leave out the rows of a table without a label (default: False)
        bit_depth: bits of the values of 16-bit PNG and TIFF files, whose high 8 are read
            (default: 8, 10, 12, 14 or 16, as the largest value needs)
        folders: what the folders in the data folder are: classes, even one called train;
            parts, also with names such as Training; or innermost, where the folder that
            an image lies in is its class, at whatever depth (default: as their names show
            it)
        only: of a data folder, read the images alone whose name matches a pattern, such
            as '*.jpg' (default: all images)
        label_by: of a data folder, a regular expression whose first capture group, or
            match, in the path relative to the data is the class, such as '_(\w+)\.' for
            12_cat.jpg (default: the folder of an image is its class)
        copies: whether photos that show one thing (copies and bursts) are kept in the
            same part, and counted together by intervals (default: 'together')
        groups: a CSV file path,group, such as groups.csv of keras-vit check: images of a
            group are kept in the same part; an image without a row is a group of one
            (default: ())
        checked: a folder of keras-vit check: its parts and groups, and the decisions that
            its page saved (labels.csv and exclude.txt, moved there) (default: None)
        overwrite: replace an existing output (default: False)
        resume: continue a stopped run; only --output is needed then (default: False)
        command: the command to record in recipe.json, by which an unfinished run
            continues too (default: '')
        callbacks: Keras callbacks for fit, which is called once with one epoch of all
            steps (default: ())
        recipe: a recipe of the paper; other options win over it (see keras-vit recipes)
            (default: none)
        model: a model's name, see keras-vit models; in Python also a config (default: the
            model of the weights, or ViT-B/16)
        image_size: 384, or 384x512 for height x width (default: (224, 224))
        steps: optimizer steps (default: 500 with fewer than 20,000 images, 10,000 with
            fewer than 500,000, else 20,000)
        epochs: how often each training image is seen (default: by the steps)
        batch_size: images of an optimizer step (default: 4096)
        accumulate: micro-batches that the batch of a step is divided into, which change
            no result; Keras's gradient_accumulation_steps multiplies the batch instead
            (default: as few as the memory allows)
        optimizer: the optimizer (default: 'adam')
        learning_rate: the highest learning rate, after warm-up (default: 0.003)
        warmup_steps: steps of linear warm-up (default: 500, or a fifth of a short run)
        decay: decay of the learning rate after warm-up (default: 'cosine')
        momentum: momentum of the optimizers sgd and muon (default: 0.9)
        weight_decay: decoupled weight decay, of kernels alone (default: 0.3)
        weight_decay_times: factor of the weight decay: the learning rate, as in the paper
            and Keras, or its schedule alone (a share of the highest), as in big_vision
            (default: 'learning_rate')
        global_clipnorm: largest norm of all gradients together; 0 does not clip (default:
            1.0)
        layer_decay: ratio of a layer's learning rate to the next layer's, such as 0.75
            (default: 1.0)
        ema_momentum: factor of Polyak averaging, 0.9999 in the paper; the averages are
            kept in place of the weights (default: no averaging)
        loss: cross-entropy; sigmoid sums over the classes (default: softmax, or sigmoid
            for multi-label data)
        head_bias: logit of every class at the start: with the loss sigmoid about -10 for
            21,000 classes, -6.9 for 1000 (default: 0.0)
        label_smoothing: share of the label that is spread over all classes (default: 0.0)
        class_weight: weights of the classes in the loss: balanced, so that each class
            weighs the same (default: none)
        dropout_rate: share of units dropped (default: 0.1)
        stochastic_depth_rate: share of examples that skip a part of the last block, fewer
            the blocks before it; 0.1 in AugReg (default: 0.0)
        augmentation: augmentation of training images: inception_crop,
            resize_small_random_crop, padded_crop, jitter, flip, none, or AugReg's light1,
            light2, medium1, medium2, strong1, strong2 (default: 'inception_crop')
        flip: how training images are flipped at random, with every augmentation: never
            where left and right differ (text, shoes), both where no side is the upper one
            (cells, aerial images) (default: horizontal, but never with the augmentations
            jitter and none)
        mixup: parameter of mixup's beta distribution, 0 for none (default: the
            augmentation's own)
        layers: image layers of keras.layers that are applied after the augmentation, with
            or without arguments: RandomErasing "RandomRotation(0.1)" CutMix; in Python
            also layer objects (default: ())
        evaluation: how an image gets its size in evaluation (default: as for the weights,
            or resize)
        validation: share of the training images that chooses the best weights; 0 keeps
            the last (default: 0.1, 0.02 or 0.01 by the number of images)
        keep: the weights that are kept: the best of all validations, or the last ones
            (default: 'best')
        evaluate_every: optimizer steps between two validations (default: a tenth of the
            run)
        patience: stop after this many validations in a row without a better one (default:
            never)
        samples: photos that travel with the classifier and its exports, without metadata
            and at the model's size: a number of the test part's, or none (default: 8 of
            the test part, none where the data have no test part)
        seed: seed of weights, image order, augmentation and dropout (default: 0)
        precision: type of the computation; auto is mixed_bfloat16 on a GPU that has it
            (compute capability 8.0), float32 elsewhere (default: 'auto')
        remat: recompute activations in the backward pass: less memory, about a third more
            time (default: False)
        strategy: where to run: one device, all GPUs, workers of TF_CONFIG (JAX: see
            --coordinator), a TPU, or the best available (default: the first GPU, or the
            CPU)
        jit_compile: compile with XLA, or not (default: where Keras would)
        steps_per_execution: optimizer steps that are run at once, which saves time on
            TPUs (default: 1)
        objective: predict classes; or without any labels the colours of corrupted
            patches, which gives weights to fine-tune (default: 'classes')
        target: what is predicted of a corrupted patch: its mean colour, the colours of
            its 4x4 version, or all its pixels (default: 'mean-color')
        corruption: share of the patches that is corrupted; the paper also tried 0.15
            (default: 0.5)
        log: receives each line about the work while it goes on; None shows neither lines
            nor progress (default: print)

    Returns:
        Finished

    Raises:
        ValueError: If a value is wrong or something does not fit.
        TypeError: If an argument is unknown or missing.
    """

def evaluate(
    model: str | os.PathLike[str] | Classifier,
    data: Labelled | DataSpec | None = None,
    *,
    weights: str | os.PathLike[str] | None = None,
    image_size: int | tuple[int, int] | None = None,
    normalization: Literal["half", "imagenet"] | None = None,
    gelu: Literal["tanh", "exact", "quick", "relu", "swiglu"] | None = None,
    num_heads: int | None = None,
    data_dir: str | os.PathLike | None = None,
    strict: bool = False,
    follow_symlinks: bool = False,
    labels: str | os.PathLike[str] | Mapping[str, str] | Sequence[str] = (),
    group_by: str | None = None,
    path_column: str | None = None,
    label_column: str | None = None,
    label_separator: str | None = None,
    skip_unlabelled: bool = False,
    folders: Literal["classes", "parts", "innermost"] | None = None,
    only: str | None = None,
    label_by: str | None = None,
    copies: Literal["together", "ignore"] = "together",
    groups: str | os.PathLike[str] | Mapping[str, str] | Sequence[str] = (),
    batch_size: int = 32,
    split: str | None = None,
    protocol: Literal["imagenet", "imagenet-real"] | None = None,
    output: str | os.PathLike[str] | None = None,
    log: Callable[[str], object] | None = ...,
) -> EvaluationReport | ImageNetAccuracy:
    r"""Evaluate a classifier, every image counted once.

    As `keras-vit evaluate`; docs/evaluation.md shows it.

    Args:
        model: a classifier's folder or export, other weights, or a name of keras-vit
            models
        data: a folder {train,test}/CLASS/* or CLASS/*, a CSV file of paths and labels,
            tfrecords:FOLDER or tfds:NAME; the flag itself may be left out (default: None)
        weights: for a model's name: imagenet21k, imagenet, a key of the catalogue, a
            file, or none for random values (default: None)
        image_size: images of another size, 384 or 384x512 (height x width) (default: the
            weights', or 224)
        normalization: range of the pixels: half is -1 to 1, imagenet ImageNet's mean and
            standard deviation (default: as in the weights)
        gelu: form of GELU, where the weights do not state it (default: as in the weights)
        num_heads: attention heads, where the weights do not show them (default: as in the
            weights)
        data_dir: the folder of tfds, or of the relative paths in a CSV file (default:
            None)
        strict: stop at an image that cannot be read (default: False)
        follow_symlinks: read images that symbolic links lead to outside of the data's
            folder (default: False)
        labels: a CSV file path,label with other labels for some images; paths are
            relative to the data (default: ())
        group_by: keep images of a group in the same part: a column of the CSV file, or a
            regular expression whose first capture group, or match, in the path relative
            to the data is the group (default: None)
        path_column: the column of paths in a CSV file (default: path)
        label_column: the column of labels, or the columns of 0 and 1 that are the
            classes, with commas between (default: label)
        label_separator: what separates the labels of an image in a table's cell, such as
            ',' or '|' (default: ;)
        skip_unlabelled: leave out the rows of a table without a label (default: False)
        folders: what the folders in the data folder are: classes, even one called train;
            parts, also with names such as Training; or innermost, where the folder that
            an image lies in is its class, at whatever depth (default: as their names show
            it)
        only: of a data folder, read the images alone whose name matches a pattern, such
            as '*.jpg' (default: all images)
        label_by: of a data folder, a regular expression whose first capture group, or
            match, in the path relative to the data is the class, such as '_(\w+)\.' for
            12_cat.jpg (default: the folder of an image is its class)
        copies: whether photos that show one thing (copies and bursts) are kept in the
            same part, and counted together by intervals (default: 'together')
        groups: a CSV file path,group, such as groups.csv of keras-vit check: images of a
            group are kept in the same part; an image without a row is a group of one
            (default: ())
        batch_size: images at once (default: 32)
        split: train, validation, calibration or test (default: test, or all images of
            data without splits)
        protocol: evaluate an ImageNet classifier by the rules of this test set; --data is
            needed for images that are not in TensorFlow Datasets (default: None)
        output: write a page of confusion, calibration and errors, these and all answers
            as CSV, metrics.json and result.json (default: None)
        log: receives each line about the work while it goes on; None shows neither lines
            nor progress (default: print)

    Returns:
        EvaluationReport | ImageNetAccuracy

    Raises:
        ValueError: If a value is wrong or something does not fit.
        TypeError: If an argument is unknown or missing.
    """

def calibrate(
    model: str | os.PathLike[str] | Classifier,
    data: Labelled | DataSpec | None = None,
    *,
    data_dir: str | os.PathLike | None = None,
    strict: bool = False,
    follow_symlinks: bool = False,
    labels: str | os.PathLike[str] | Mapping[str, str] | Sequence[str] = (),
    group_by: str | None = None,
    path_column: str | None = None,
    label_column: str | None = None,
    label_separator: str | None = None,
    skip_unlabelled: bool = False,
    folders: Literal["classes", "parts", "innermost"] | None = None,
    only: str | None = None,
    label_by: str | None = None,
    copies: Literal["together", "ignore"] = "together",
    groups: str | os.PathLike[str] | Mapping[str, str] | Sequence[str] = (),
    max_error: float | None = None,
    confidence: float = 0.95,
    strange: float = 0.01,
    split: str | None = None,
    training_data: Labelled | DataSpec | None = None,
    unknown: str | os.PathLike[str] | None = None,
    batch_size: int = 32,
    log: Callable[[str], object] | None = ...,
) -> Classifier:
    r"""Find when a classifier answers and when it answers "unknown", from held-out images.

    "unknown" becomes the last output of the model in the folder, and of its exports.

    As `keras-vit calibrate`; docs/unknown.md shows it.

    Args:
        model: a classifier's folder
        data: a folder {train,test}/CLASS/* or CLASS/*, a CSV file of paths and labels,
            tfrecords:FOLDER or tfds:NAME; the flag itself may be left out (default: None)
        data_dir: the folder of tfds, or of the relative paths in a CSV file (default:
            None)
        strict: stop at an image that cannot be read (default: False)
        follow_symlinks: read images that symbolic links lead to outside of the data's
            folder (default: False)
        labels: a CSV file path,label with other labels for some images; paths are
            relative to the data (default: ())
        group_by: keep images of a group in the same part: a column of the CSV file, or a
            regular expression whose first capture group, or match, in the path relative
            to the data is the group (default: None)
        path_column: the column of paths in a CSV file (default: path)
        label_column: the column of labels, or the columns of 0 and 1 that are the
            classes, with commas between (default: label)
        label_separator: what separates the labels of an image in a table's cell, such as
            ',' or '|' (default: ;)
        skip_unlabelled: leave out the rows of a table without a label (default: False)
        folders: what the folders in the data folder are: classes, even one called train;
            parts, also with names such as Training; or innermost, where the folder that
            an image lies in is its class, at whatever depth (default: as their names show
            it)
        only: of a data folder, read the images alone whose name matches a pattern, such
            as '*.jpg' (default: all images)
        label_by: of a data folder, a regular expression whose first capture group, or
            match, in the path relative to the data is the class, such as '_(\w+)\.' for
            12_cat.jpg (default: the folder of an image is its class)
        copies: whether photos that show one thing (copies and bursts) are kept in the
            same part, and counted together by intervals (default: 'together')
        groups: a CSV file path,group, such as groups.csv of keras-vit check: images of a
            group are kept in the same part; an image without a row is a group of one
            (default: ())
        max_error: largest share of wrong answers, such as 0.02; other images are answered
            with unknown (default: no bound: only strange images are refused)
        confidence: probability with which the bound of --max-error holds (default: 0.95)
        strange: largest share of known images that are refused as strange (default: 0.01)
        split: the calibration images: a part of the run or of the data (default:
            calibration if the run has it, else test, or all images of data without
            splits)
        training_data: the data that the run trained on, by which strange images are
            recognised (default: the data)
        unknown: images of none of the classes, to report how many are refused (default:
            None)
        batch_size: images at once (default: 32)
        log: receives each line about the work while it goes on; None shows neither lines
            nor progress (default: print)

    Returns:
        Classifier

    Raises:
        ValueError: If a value is wrong or something does not fit.
        TypeError: If an argument is unknown or missing.
    """

def compare(
    old: str | os.PathLike[str] | Classifier,
    new: str | os.PathLike[str] | Classifier,
    data: Labelled | DataSpec | None = None,
    *,
    data_dir: str | os.PathLike | None = None,
    strict: bool = False,
    follow_symlinks: bool = False,
    labels: str | os.PathLike[str] | Mapping[str, str] | Sequence[str] = (),
    group_by: str | None = None,
    path_column: str | None = None,
    label_column: str | None = None,
    label_separator: str | None = None,
    skip_unlabelled: bool = False,
    folders: Literal["classes", "parts", "innermost"] | None = None,
    only: str | None = None,
    label_by: str | None = None,
    copies: Literal["together", "ignore"] = "together",
    groups: str | os.PathLike[str] | Mapping[str, str] | Sequence[str] = (),
    split: str | None = None,
    gate: str | None = None,
    batch_size: int = 32,
    output: str | os.PathLike[str] | None = None,
    log: Callable[[str], object] | None = ...,
) -> Comparison:
    r"""Compare a new classifier with an old one on the same images, with gates.

    As `keras-vit compare`; docs/compare.md shows it.

    Args:
        old: a classifier's folder, or an export of any format
        new: the same, of the classifier that is to replace it
        data: a folder {train,test}/CLASS/* or CLASS/*, a CSV file of paths and labels,
            tfrecords:FOLDER or tfds:NAME; the flag itself may be left out (default: None)
        data_dir: the folder of tfds, or of the relative paths in a CSV file (default:
            None)
        strict: stop at an image that cannot be read (default: False)
        follow_symlinks: read images that symbolic links lead to outside of the data's
            folder (default: False)
        labels: a CSV file path,label with other labels for some images; paths are
            relative to the data (default: ())
        group_by: keep images of a group in the same part: a column of the CSV file, or a
            regular expression whose first capture group, or match, in the path relative
            to the data is the group (default: None)
        path_column: the column of paths in a CSV file (default: path)
        label_column: the column of labels, or the columns of 0 and 1 that are the
            classes, with commas between (default: label)
        label_separator: what separates the labels of an image in a table's cell, such as
            ',' or '|' (default: ;)
        skip_unlabelled: leave out the rows of a table without a label (default: False)
        folders: what the folders in the data folder are: classes, even one called train;
            parts, also with names such as Training; or innermost, where the folder that
            an image lies in is its class, at whatever depth (default: as their names show
            it)
        only: of a data folder, read the images alone whose name matches a pattern, such
            as '*.jpg' (default: all images)
        label_by: of a data folder, a regular expression whose first capture group, or
            match, in the path relative to the data is the class, such as '_(\w+)\.' for
            12_cat.jpg (default: the folder of an image is its class)
        copies: whether photos that show one thing (copies and bursts) are kept in the
            same part, and counted together by intervals (default: 'together')
        groups: a CSV file path,group, such as groups.csv of keras-vit check: images of a
            group are kept in the same part; an image without a row is a group of one
            (default: ())
        split: train, validation, calibration or test (default: the images that each run
            held out or that are new to it)
        gate: conditions between commas, such as 'top_1 > -0.5, class_recall > -3'; see
            docs/compare.md (default: None)
        batch_size: images at once (default: 32)
        output: write the images that only one of the two has right, a new .csv (default:
            None)
        log: receives each line about the work while it goes on; None shows neither lines
            nor progress (default: print)

    Returns:
        Comparison

    Raises:
        ValueError: If a value is wrong or something does not fit.
        TypeError: If an argument is unknown or missing.
    """

def embed(
    model: str | os.PathLike[str] | Classifier,
    images: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    weights: str | os.PathLike[str] | None = None,
    image_size: int | tuple[int, int] | None = None,
    normalization: Literal["half", "imagenet"] | None = None,
    gelu: Literal["tanh", "exact", "quick", "relu", "swiglu"] | None = None,
    num_heads: int | None = None,
    batch_size: int = 32,
    feature: Literal["pre_logits", "token", "avg"] = "pre_logits",
    bit_depth: int | None = None,
    log: Callable[[str], object] | None = ...,
) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Write features of images.

    As `keras-vit embed`; docs/evaluation.md shows it.

    Args:
        model: a classifier's folder or export, other weights, or a name of keras-vit
            models
        images: image files and folders of images
        output: the file of names and features to write, an .npz
        weights: for a model's name: imagenet21k, imagenet, a key of the catalogue, a
            file, or none for random values (default: None)
        image_size: images of another size, 384 or 384x512 (height x width) (default: the
            weights', or 224)
        normalization: range of the pixels: half is -1 to 1, imagenet ImageNet's mean and
            standard deviation (default: as in the weights)
        gelu: form of GELU, where the weights do not state it (default: as in the weights)
        num_heads: attention heads, where the weights do not show them (default: as in the
            weights)
        batch_size: images at once (default: 32)
        feature: input of the head, class token, or mean of the patch tokens (default:
            'pre_logits')
        bit_depth: bits of the values of 16-bit PNG and TIFF files, whose high 8 are read
            (default: as the model's)
        log: receives each line about the work while it goes on; None shows neither lines
            nor progress (default: print)

    Returns:
        tuple[dict[str, Any], list[tuple[str, str]]]

    Raises:
        ValueError: If a value is wrong or something does not fit.
        TypeError: If an argument is unknown or missing.
    """

def few_shot(
    model: str | os.PathLike[str] | Classifier,
    data: Labelled | DataSpec | None = None,
    *,
    weights: str | os.PathLike[str] | None = None,
    image_size: int | tuple[int, int] | None = None,
    normalization: Literal["half", "imagenet"] | None = None,
    gelu: Literal["tanh", "exact", "quick", "relu", "swiglu"] | None = None,
    num_heads: int | None = None,
    data_dir: str | os.PathLike | None = None,
    strict: bool = False,
    follow_symlinks: bool = False,
    split: str | os.PathLike[str] | Mapping[str, str] | Sequence[str] = (),
    labels: str | os.PathLike[str] | Mapping[str, str] | Sequence[str] = (),
    group_by: str | None = None,
    path_column: str | None = None,
    label_column: str | None = None,
    label_separator: str | None = None,
    skip_unlabelled: bool = False,
    bit_depth: int | None = None,
    folders: Literal["classes", "parts", "innermost"] | None = None,
    only: str | None = None,
    label_by: str | None = None,
    copies: Literal["together", "ignore"] = "together",
    groups: str | os.PathLike[str] | Mapping[str, str] | Sequence[str] = (),
    batch_size: int = 32,
    shots: Sequence[int] = (1, 5, 10, 25),
    seeds: Sequence[int] = (0, 1, 2),
    l2: float = 1024.0,
    feature: Literal["pre_logits", "token", "avg"] = "pre_logits",
    evaluation: Literal[
        "resize",
        "resize_small_central_crop",
        "resize_central_crop",
        "huggingface",
        "torchvision",
        "keras_hub",
    ] = "resize_central_crop",
    output: str | os.PathLike[str] | None = None,
    log: Callable[[str], object] | None = ...,
) -> FewShotReport:
    r"""Evaluate frozen features with a few images per class.

    As `keras-vit few-shot`; docs/evaluation.md shows it.

    Args:
        model: a classifier's folder or export, other weights, or a name of keras-vit
            models
        data: a folder {train,test}/CLASS/* or CLASS/*, a CSV file of paths and labels,
            tfrecords:FOLDER or tfds:NAME; the flag itself may be left out (default: None)
        weights: for a model's name: imagenet21k, imagenet, a key of the catalogue, a
            file, or none for random values (default: None)
        image_size: images of another size, 384 or 384x512 (height x width) (default: the
            weights', or 224)
        normalization: range of the pixels: half is -1 to 1, imagenet ImageNet's mean and
            standard deviation (default: as in the weights)
        gelu: form of GELU, where the weights do not state it (default: as in the weights)
        num_heads: attention heads, where the weights do not show them (default: as in the
            weights)
        data_dir: the folder of tfds, or of the relative paths in a CSV file (default:
            None)
        strict: stop at an image that cannot be read (default: False)
        follow_symlinks: read images that symbolic links lead to outside of the data's
            folder (default: False)
        split: a CSV file path,split with the part of each image, by its path relative to
            the data (default: ())
        labels: a CSV file path,label with other labels for some images; paths are
            relative to the data (default: ())
        group_by: keep images of a group in the same part: a column of the CSV file, or a
            regular expression whose first capture group, or match, in the path relative
            to the data is the group (default: None)
        path_column: the column of paths in a CSV file (default: path)
        label_column: the column of labels, or the columns of 0 and 1 that are the
            classes, with commas between (default: label)
        label_separator: what separates the labels of an image in a table's cell, such as
            ',' or '|' (default: ;)
        skip_unlabelled: leave out the rows of a table without a label (default: False)
        bit_depth: bits of the values of 16-bit PNG and TIFF files, whose high 8 are read
            (default: 8, 10, 12, 14 or 16, as the largest value needs)
        folders: what the folders in the data folder are: classes, even one called train;
            parts, also with names such as Training; or innermost, where the folder that
            an image lies in is its class, at whatever depth (default: as their names show
            it)
        only: of a data folder, read the images alone whose name matches a pattern, such
            as '*.jpg' (default: all images)
        label_by: of a data folder, a regular expression whose first capture group, or
            match, in the path relative to the data is the class, such as '_(\w+)\.' for
            12_cat.jpg (default: the folder of an image is its class)
        copies: whether photos that show one thing (copies and bursts) are kept in the
            same part, and counted together by intervals (default: 'together')
        groups: a CSV file path,group, such as groups.csv of keras-vit check: images of a
            group are kept in the same part; an image without a row is a group of one
            (default: ())
        batch_size: images at once (default: 32)
        shots: training images per class (default: (1, 5, 10, 25))
        seeds: each chooses other images (default: (0, 1, 2))
        l2: regularisation (default: 1024.0)
        feature: input of the head, class token, or mean of the patch tokens (default:
            'pre_logits')
        evaluation: how images are resized (default: 'resize_central_crop')
        output: write result files (default: None)
        log: receives each line about the work while it goes on; None shows neither lines
            nor progress (default: print)

    Returns:
        FewShotReport

    Raises:
        ValueError: If a value is wrong or something does not fit.
        TypeError: If an argument is unknown or missing.
    """

def convert(
    source: str | os.PathLike[str] | Classifier,
    destination: str | os.PathLike[str],
    *,
    to: Literal["classifier", "official", "huggingface"] | None = None,
    image_size: int | tuple[int, int] | None = None,
    normalization: Literal["half", "imagenet"] | None = None,
    gelu: Literal["tanh", "exact", "quick", "relu", "swiglu"] | None = None,
    num_heads: int | None = None,
    samples: str | None = None,
    overwrite: bool = False,
    log: Callable[[str], object] | None = ...,
) -> list[str]:
    """Convert weights from and to other code bases.

    As `keras-vit convert`; docs/checkpoints.md shows it.

    Args:
        source: a classifier's folder; an .npz, .h5, .safetensors or PyTorch file of the
            official code, Hugging Face, timm, torchvision, KerasHub or vit-keras; a
            folder of Hugging Face, timm or KerasHub
        destination: the file or folder to write
        to: by default official where DEST ends in .npz, and a classifier's folder
            elsewhere (default: None)
        image_size: the images of the source's position embeddings, 224 or 160x224 (height
            x width), where the file does not show it (default: None)
        normalization: range of the pixels: half is -1 to 1, imagenet ImageNet's mean and
            standard deviation (default: as in the weights)
        gelu: form of GELU, where the weights do not state it (default: as in the weights)
        num_heads: attention heads, where the weights do not show them (default: as in the
            weights)
        samples: photos that a classifier's folder holds, without metadata and at the
            model's size: a number of SOURCE's samples, a folder of others, or none
            (default: all samples of SOURCE)
        overwrite: replace an existing DEST (default: False)
        log: receives each line about the work while it goes on; None shows neither lines
            nor progress (default: print)

    Returns:
        list[str]

    Raises:
        ValueError: If a value is wrong or something does not fit.
        TypeError: If an argument is unknown or missing.
    """

def verify(
    artefact: str | os.PathLike[str],
    *,
    time_limit: float = 600.0,
    log: Callable[[str], object] | None = ...,
) -> ExportReport:
    """Check an export in its own runtime, on this machine.

    Its parts must have the SHA-256 that they had when they were written, and its golden samples,
    a few images, the probabilities that it gave then.

    As `keras-vit verify`; docs/export.md shows it.

    Args:
        artefact: what keras-vit export wrote
        time_limit: time in which the export must answer the images (default: 600.0)
        log: receives each line about the work while it goes on; None shows neither lines
            nor progress (default: print)

    Returns:
        ExportReport

    Raises:
        ValueError: If a value is wrong or something does not fit.
        TypeError: If an argument is unknown or missing.
    """

def push(
    folder: str | os.PathLike[str] | Classifier,
    repository: str,
    *,
    private: bool = False,
    dry_run: bool = False,
    log: Callable[[str], object] | None = ...,
) -> Pushed:
    """Push a classifier to the Hugging Face Hub, with a model card, in one commit.

    No photos, absolute paths or names of training images are pushed. --dry-run prints every file
    and its size, and asks the Hub nothing.

    As `keras-vit push`; docs/hub.md shows it.

    Args:
        folder: the classifier: its folder, or what keras-vit predict takes, except for
            exports
        repository: the repository, which is made if it is missing
        private: let nobody else see it (default: False)
        dry_run: print every file and its size, and push nothing (default: False)
        log: receives each line about the work while it goes on; None shows neither lines
            nor progress (default: print)

    Returns:
        Pushed

    Raises:
        ValueError: If a value is wrong or something does not fit.
        TypeError: If an argument is unknown or missing.
    """
