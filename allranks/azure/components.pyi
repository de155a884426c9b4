# mypy: disallow-subclassing-any=False
# ruff: noqa: A002, D205, PYI021
# The texts are what an editor shows.

from typing import Generic, Literal, TypeAlias, TypeVar

from azure.ai.ml import Input
from azure.ai.ml.entities import Command, CommandComponent

from allranks.azure.sdk import NodeOutput, PipelineInput, SweepDistribution

_Later: TypeAlias = PipelineInput | SweepDistribution
Text: TypeAlias = str | _Later
Whole: TypeAlias = int | _Later
Number: TypeAlias = float | _Later
Flag: TypeAlias = Literal["true", "false"] | _Later
Data: TypeAlias = Input | NodeOutput | PipelineInput
_Outputs = TypeVar("_Outputs")

class Step(Command, Generic[_Outputs]):
    @property
    def outputs(self) -> _Outputs: ...

# Below: generated from the components' YAML by `make renew`. Edit the YAML instead.

class DataOutputs:
    data: NodeOutput

class ModelCheckpointsMetricsOutputs:
    model: NodeOutput
    checkpoints: NodeOutput
    metrics: NodeOutput

class ReportOutputs:
    report: NodeOutput

class PrepareData(CommandComponent):
    def __call__(
        self,
        *,
        data: Data | None = None,
        dataset: Literal["digits", "image_folder", "npy", "csv", "parquet"] | Text = "digits",
        task: Literal["classification", "regression"] | Text = "classification",
        target: Text = "target",
        ignore_columns: Text | None = None,
        categorical_columns: Text | None = None,
        missing_values: Text | None = None,
        on_missing: Literal["fail", "skip", "impute"] | Text = "fail",
        image_size: Whole | None = None,
        color: Literal["auto", "grayscale", "rgb"] | Text = "auto",
        max_megapixels: Whole = 64,
        image_storage: Literal["pixels", "encoded"] | Text = "pixels",
        encoded_size: Whole | None = None,
        on_bad_file: Literal["fail", "skip"] | Text = "fail",
        validation_fraction: Number = 0.1,
        test_fraction: Number = 0.2,
        seed: Whole = 0,
        rows_per_shard: Whole | None = None,
        init_timeout: Number = 10,
        step_timeout: Number = 240,
    ) -> Step[DataOutputs]:
        """Turns images, arrays or tables into a dataset that every trainer of this library reads: fixed-size shards
        with an index, split into train, validation and test. On each node the first rank does the work with all of the
        node's cores while the others wait; several nodes share the files. The result is the same, byte for byte,
        whatever the number of nodes. Data may be larger than memory. Files that cannot be used are named.

        Args:
            data: Folder with your files. image_folder: one folder of images for each class. npy: x.npy with the rows
                and y.npy with their labels or targets. csv, parquet: one table, in one file or several. Leave empty for
                digits.
            dataset: What is read. digits is a built-in sample of 1,797 handwritten digits of 8x8 pixels; the others
                read data. All files are taken together and split anew.
            task: What is predicted: a class, or a number. regression is for csv, parquet and npy.
            target: For csv and parquet: the column that is predicted. Classes are texts or numbers. All other columns
                are features: numbers, or categories if they hold texts.
            ignore_columns: For csv and parquet: columns that are left out, separated by commas, such as an identifier
                or a text.
            categorical_columns: For csv and parquet: columns that are categories though they hold numbers, such as a
                code, or texts and numbers, separated by commas. Columns of texts alone are categories without being
                named.
            missing_values: For csv and parquet: what stands for a missing value, separated by commas, such as ?,-999.
                Empty cells and NA, N/A, NaN, null and None do without being named; !NA makes NA a value.
            on_missing: For csv and parquet, when a row lacks a value: fail stops and names file, line and column; skip
                leaves the row out; impute gives a number the mean of train and a feature that says so, makes a category
                of its own of missing texts, and leaves out rows that lack the target.
            image_size: For image_folder: side in pixels to which images are brought, scaled and then cropped around the
                centre. Needed when they differ in size.
            color: For image_folder: channels of the images, one (grayscale) or three (rgb). auto is rgb.
            max_megapixels: Images of more than this many million pixels are bad files. They are not decoded: a small
                file can unpack to more than the memory holds.
            image_storage: For image_folder: how images are kept. pixels are read fastest, and take a byte for each
                number. encoded keeps JPEG and PNG files as they are, which is much smaller for photographs; trainers
                decode them while they read, in as many threads as loader_workers says.
            encoded_size: For image_storage encoded: shorter side in pixels to which larger images are reduced once, and
                encoded anew. At least image_size; 256 is usual for 224. Leave empty to keep the files byte for byte.
            on_bad_file: When a file is truncated, too large or not what its name says: fail stops and names it; skip
                leaves it out and names it in skipped.csv. A table with an impossible value is left out as a whole file.
            validation_fraction: Share of all rows that goes into validation, with the classes in proportion.
            test_fraction: Share of all rows that goes into test, with the classes in proportion.
            seed: Decides which rows go into which split; the same seed gives the same splits.
            rows_per_shard: Rows in each file. Leave empty for files of about 16 MB. Nodes and cores share the work file
                by file; larger files mean fewer of them.
            init_timeout: Minutes in which all ranks have to have started.
            step_timeout: Minutes that the waiting ranks give to the one that does the work.
        """

class PrepareText(CommandComponent):
    def __call__(
        self,
        *,
        data: Data | None = None,
        dataset: Literal["stdlib", "files", "jsonl", "csv", "parquet"] | Text = "stdlib",
        task: Literal["language_modeling", "text_classification"] | Text = "language_modeling",
        text_column: Text = "text",
        label_column: Text = "label",
        pattern: Text = "*",
        tokenizer: Data | None = None,
        vocabulary: Whole | None = None,
        sequence_length: Whole = 256,
        documents: Literal["joined", "separate"] | Text = "joined",
        max_megabytes: Number = 16,
        on_bad_file: Literal["fail", "skip"] | Text = "fail",
        validation_fraction: Number = 0.1,
        test_fraction: Number = 0.1,
        seed: Whole = 0,
        rows_per_shard: Whole | None = None,
        init_timeout: Number = 10,
        step_timeout: Number = 240,
    ) -> Step[DataOutputs]:
        """Turns texts into a dataset of tokens that the text trainers of this library read: packed rows for a language
        model, or passages with a class for text classification, split into train, validation and test by document.
        Tokens are bytes, those of a tokenizer of yours, or learnt here from the train split. On each node the first
        rank does the work with all of the node's cores while the others wait; several nodes share it. The result is the
        same, byte for byte, whatever the number of nodes. Data may be larger than memory. Documents that cannot be used
        are named.

        Args:
            data: Folder with your texts. files: one document in each file, and for text_classification one folder for
                each class. jsonl, csv, parquet: one document in each row of one or several files. Leave empty for
                stdlib.
            dataset: What is read. stdlib is a built-in sample of about 9 MB: the sources of Python's standard library,
                without its tests; its classes are six of its packages. The others read data. jsonl and csv may be
                gzipped. A large file is shared by nodes and cores if it is a plain jsonl or a parquet; give csv and
                gzipped files as several.
            task: What is predicted: the next token of a text, or the class of a passage.
            text_column: For jsonl, csv and parquet: the column with the texts.
            label_column: For text_classification from jsonl, csv and parquet: the column with the classes, texts or
                whole numbers.
            pattern: For files: which names count, such as *.txt,*.md. Several are separated by commas; one with a slash
                is compared with the path in the folder. Hidden and empty files never count.
            tokenizer: Folder with a tokenizer.json, as Hugging Face's fast tokenizers and model folders have it. It is
                copied into the dataset. Leave empty for bytes, or to learn one with vocabulary.
            vocabulary: Without a tokenizer: learn one of so many tokens from the train split (byte-level BPE), and keep
                it in the dataset. A language model learns much faster on such tokens than on bytes.
            sequence_length: language_modeling: tokens that are predicted in each row. text_classification: the most
                tokens of a passage, with the tokenizer's special ones; longer documents are cut into passages of equal
                length, each of the document's class.
            documents: For language_modeling: what a row that has several documents means. joined: a token is predicted
                from all before it in the row. separate: from those of its own document alone, whose beginning is
                predicted from the token that ends the one before: attention does not cross documents. The rows are the
                same.
            max_megabytes: Documents of more megabytes are bad ones. Memory holds a few documents at a time.
            on_bad_file: When a document is not UTF-8, too large, empty or without a class: fail stops and names its
                file and line; skip leaves it out and names it in skipped.csv.
            validation_fraction: Share of the documents that goes into validation. Files are drawn by their path, in
                each class alike; rows of tables by their text, so that a text that occurs twice is in one split only.
            test_fraction: Share of the documents that goes into test, drawn likewise.
            seed: Decides which documents go into which split; the same seed gives the same splits.
            rows_per_shard: Rows in each file, at most. Leave empty for files of up to about 16 MB.
            init_timeout: Minutes in which all ranks have to have started.
            step_timeout: Minutes that the waiting ranks give to the one that does the work.
        """

class TrainDdp(CommandComponent):
    def __call__(
        self,
        *,
        data: Data,
        architecture: Text = "mlp",
        model_code: Data | None = None,
        initial_model: Data | None = None,
        initial_weights: Data | None = None,
        normalization: Literal["auto", "data", "imagenet", "half"] | Text = "auto",
        epochs: Whole = 15,
        batch_size: Whole = 64,
        accumulation_steps: Whole = 1,
        optimizer: Literal["sgd", "adam", "adamw"] | Text = "adamw",
        learning_rate: Number = 0.006,
        momentum: Number = 0.9,
        weight_decay: Number | None = None,
        label_smoothing: Number = 0.1,
        clip_norm: Number = 1,
        warmup_fraction: Number = 0.05,
        schedule: Literal["constant", "cosine", "linear"] | Text = "cosine",
        crop_padding: Whole = 0,
        resized_crop: Number = 1,
        horizontal_flip: Number = 0,
        color_jitter: Number = 0,
        rand_augment: Whole = 0,
        rand_augment_magnitude: Whole = 9,
        random_erasing: Number = 0,
        mixup: Number = 0,
        cutmix: Number = 0,
        precision: Literal["fp32", "bf16", "fp16", "fp64"] | Text = "fp32",
        gradient_checkpointing: Flag = "false",
        compile: Flag = "false",
        deterministic: Flag = "false",
        sync_batch_norm: Flag = "false",
        seed: Whole = 0,
        log_every: Whole = 10,
        checkpoint_every: Whole = 0,
        checkpoint_minutes: Number = 10,
        keep_checkpoints: Whole = 2,
        keep_every: Whole = 0,
        verify_checkpoints: Flag = "false",
        resume_from: Data | None = None,
        read: Literal["auto", "memory", "random", "streaming"] | Text = "auto",
        shuffle_buffer: Number = 512,
        loader_workers: Whole = 1,
        pin_memory: Flag = "true",
        prefetch: Whole = 4,
        init_timeout: Number = 10,
        step_timeout: Number = 10,
    ) -> Step[ModelCheckpointsMetricsOutputs]:
        """Trains a model on every GPU of every node with PyTorch's DistributedDataParallel. Choose this one unless the
        model does not fit on one GPU. The batch size is that of all GPUs together, so the result does not depend on how
        many there are. A run that was interrupted and is started again continues from its last checkpoint and ends with
        the same weights. The model is saved in MLflow's format and needs no code of yours to be deployed.

        Args:
            data: A prepared dataset, as "Prepare data" writes it: images or a table, with classes or with a number to
                predict.
            architecture: mlp; resnet or vit, small ones for images; resnet18, resnet34, resnet50, vit_s or vit_b for
                images too; vit_small_patch16 or vit_base_patch16, as weights are published for them; or
                FILE.py:FUNCTION in the folder "model_code". Tables take mlp. The function takes (input_shape,
                num_outputs) and returns a torch.nn.Module for channels-first batches.
            model_code: Folder with your model's code, when "architecture" is FILE.py:FUNCTION; otherwise it has no
                effect.
            initial_model: A model that this trainer, or another one of the same framework, has saved, of the same
                architecture: the training begins with its weights, and with its mean and deviation of the rows. With
                other classes, or another target, its head is new. A run that goes on from a checkpoint has its weights
                from there.
            initial_weights: Folder with one file of published weights to fine-tune, .safetensors or .pth: torchvision's
                or timm's for resnet18, resnet34 or resnet50, timm's for vit_small_patch16 or vit_base_patch16. The last
                layer is new where the number of classes differs. ResNets need pictures of more than 64 pixels. A run
                that goes on from a checkpoint has its weights from there.
            normalization: Mean and deviation by which the model normalises its rows. data: the data's own. imagenet:
                those of torchvision's weights, and of DeiT, DINO and MAE. half: 0.5, those of timm's vision
                transformers. auto: those that the first weights were trained with: of initial_model; for
                initial_weights what timm's config.json beside them says, else imagenet for a ResNet and half for a
                vision transformer; data without either.
            epochs: Passes over the training rows.
            batch_size: Rows in one optimizer step, over all GPUs together. Must be a multiple of GPUs x
                accumulation_steps; the last partial batch of an epoch is left out.
            accumulation_steps: Parts in which each GPU computes its share of a batch, one after the other, to use less
                memory.
            optimizer: Optimization method.
            learning_rate: Highest learning rate, reached after the warm-up.
            momentum: Momentum of sgd, and the first beta of adam and adamw.
            weight_decay: Weight decay of matrices and convolutions; biases and normalisation weights are left out.
                Leave it empty for a value that suits the optimizer: 0.3 for adamw, 0.0005 for sgd, 0 for adam.
            label_smoothing: Share of each label that is spread over all classes while training; keeps the model from
                being too sure, and usually better on new data. 0 turns it off; regression has no use for it.
            clip_norm: Largest norm of the gradient over all parameters; 0 turns clipping off.
            warmup_fraction: Part of all steps during which the learning rate rises from 0, as a fraction.
            schedule: What the learning rate does after the warm-up. Cosine and linear fall to 0 at the end.
            crop_padding: Move each training picture by up to so many pixels in both directions; what comes in is of the
                mean colour. 4 is usual for 32 x 32. 0 turns it off.
            resized_crop: Cut a part of at least this share of each training picture's area, with sides of 3:4 to 4:3 of
                the picture's, and bring it to the picture's size. 0.08 to 0.35 is usual for photographs. 1 turns it
                off.
            horizontal_flip: Share of the training pictures that are mirrored, left to right. 0.5 suits what has no left
                and right; digits and letters do. 0 turns it off.
            color_jitter: Change brightness, contrast and saturation of each training picture by up to this share, and
                the hue by up to a quarter of it as part of the colour circle. 0.4 is usual. 0 turns it off. For
                pictures of uint8.
            rand_augment: RandAugment: so many changes of each training picture, drawn from fourteen (shear, shift,
                rotate, brightness, contrast, colour, sharpness, posterize, solarize, equalize, autocontrast, none). 2
                is usual. 0 turns it off. For pictures of uint8.
            rand_augment_magnitude: How strong the changes of rand_augment are.
            random_erasing: Share of the training pictures in which a rectangle of 2 to 33 % of the area is filled with
                the mean colour. 0.25 is usual. 0 turns it off.
            mixup: Mix each training picture and its label with another's, by a share drawn from Beta(mixup, mixup). 0.2
                is usual; larger mixes more. With cutmix as well, each pair draws which of the two. 0 turns it off.
            cutmix: Put a rectangle of another training picture into each, of a share drawn from Beta(cutmix, cutmix) of
                its area, and mix the labels by the area. 1 is usual. 0 turns it off.
            precision: Arithmetic of the forward and backward pass. bf16 is the best choice on recent GPUs; fp16 scales
                the loss and needs a GPU; fp64 is for exact comparisons.
            gradient_checkpointing: Compute activations again in the backward pass instead of keeping them; less memory,
                about a third more time.
            compile: Compile the model with torch.compile; a minute at the start, faster steps afterwards.
            deterministic: Use only operations of the GPU that repeat their bits, so that the same job, and one that was
                killed and continued, ends with exactly the same weights on GPUs of the same model. Convolutions become
                slower, since cuDNN may not try which of its algorithms is the fastest, and an operation without such a
                form ends the run and is named. Without it, runs on GPUs differ in the last digits. On a CPU it has no
                effect: there the bits are the same in any case.
            sync_batch_norm: Let batch normalization (of resnet18, resnet34, resnet50 and your own model) take its
                statistics over the rows of all GPUs, so that the result does not depend on how many there are; each
                such layer then waits for all GPUs. Without it, each GPU takes those of its own rows (batch_size / GPUs
                / accumulation_steps), so that other numbers of GPUs end with other weights, and the statistics of rank
                0 are validated and saved.
            seed: Seed of the initial weights and of the order of the rows.
            log_every: Steps between two lines of metrics. At these steps the ranks also compare notes: a loss that is
                not finite is acted upon here.
            checkpoint_every: Steps between two checkpoints; 0 makes one at the end of each epoch.
            checkpoint_minutes: Minutes after which another checkpoint is made, besides those of checkpoint_every, at
                the next line of metrics; it is written while the training goes on. 0 makes none.
            keep_checkpoints: Newest checkpoints that are kept; one fewer where there is no room for a further one.
            keep_every: Keep for good the checkpoints of steps that are a multiple of this, too; 0 keeps the newest
                alone.
            verify_checkpoints: Read all bytes of a checkpoint before continuing from it. Without it each tensor is
                checked when it is read, and a damaged one found as well.
            resume_from: Folder of checkpoints of another run to continue from. A run that was interrupted continues
                from its own output "checkpoints" without this. With more epochs than that run had, the further ones are
                trained, at the learning rates of all of them together; where these do not depend on the epochs
                (schedule constant, warmup_fraction 0), the result is that of a run that had so many from the start.
            read: How rows are read. auto: from memory up to 256 MB, at random from the files beyond. memory: all of
                them are held, on the GPU if there is one; encoded pictures as such, on the node. random: from the files
                at random, which a mount of cloud storage is slow at. streaming: whole files one after another, mixed in
                a buffer, in an order of its own that does not depend on the number of GPUs either. Choose it for data
                on a mount that does not fit into memory.
            shuffle_buffer: For streaming: size of the files whose rows are mixed at a time. Each GPU needs half as much
                again of the node's memory, which those of a node share; files are as large as rows_per_shard of the
                preparation says. Data of half its size is shuffled as a whole. An interrupted run is continued only
                with the same.
            loader_workers: Threads of each rank that read batches ahead; 0 reads between two steps. Datasets below 256
                MB are held in memory and read by none, unless pictures are changed at random.
            pin_memory: Copy batches to the GPU from page-locked memory, while it computes. Without a GPU this has no
                effect.
            prefetch: Batches that the reading threads may be ahead.
            init_timeout: Minutes in which all ranks have to have started.
            step_timeout: Minutes after which a rank that waits for the others gives up. One in which nothing moves for
                half of that, 10 seconds at least, no step, batch or file, is named with where it stands, and ends the
                run.
        """

class TrainTorchrun(CommandComponent):
    def __call__(
        self,
        *,
        data: Data,
        processes_per_node: Whole = 1,
        architecture: Text = "mlp",
        model_code: Data | None = None,
        initial_model: Data | None = None,
        initial_weights: Data | None = None,
        normalization: Literal["auto", "data", "imagenet", "half"] | Text = "auto",
        epochs: Whole = 15,
        batch_size: Whole = 64,
        accumulation_steps: Whole = 1,
        optimizer: Literal["sgd", "adam", "adamw"] | Text = "adamw",
        learning_rate: Number = 0.006,
        momentum: Number = 0.9,
        weight_decay: Number | None = None,
        label_smoothing: Number = 0.1,
        clip_norm: Number = 1,
        warmup_fraction: Number = 0.05,
        schedule: Literal["constant", "cosine", "linear"] | Text = "cosine",
        crop_padding: Whole = 0,
        resized_crop: Number = 1,
        horizontal_flip: Number = 0,
        color_jitter: Number = 0,
        rand_augment: Whole = 0,
        rand_augment_magnitude: Whole = 9,
        random_erasing: Number = 0,
        mixup: Number = 0,
        cutmix: Number = 0,
        precision: Literal["fp32", "bf16", "fp16", "fp64"] | Text = "fp32",
        gradient_checkpointing: Flag = "false",
        compile: Flag = "false",
        deterministic: Flag = "false",
        sync_batch_norm: Flag = "false",
        seed: Whole = 0,
        log_every: Whole = 10,
        checkpoint_every: Whole = 0,
        checkpoint_minutes: Number = 10,
        keep_checkpoints: Whole = 2,
        keep_every: Whole = 0,
        verify_checkpoints: Flag = "false",
        resume_from: Data | None = None,
        read: Literal["auto", "memory", "random", "streaming"] | Text = "auto",
        shuffle_buffer: Number = 512,
        loader_workers: Whole = 1,
        pin_memory: Flag = "true",
        prefetch: Whole = 4,
        init_timeout: Number = 10,
        step_timeout: Number = 10,
        max_restarts: Whole = 3,
        min_nodes: Whole | None = None,
    ) -> Step[ModelCheckpointsMetricsOutputs]:
        """The same training as "Train (PyTorch DDP)", started differently: Azure ML starts one process on each node,
        and torchrun starts the ranks there, as many as the input "processes_per_node" says. Choose this one where the
        number of ranks of a node has to be an input, or where your cluster's tools expect torchrun.

        Args:
            data: A prepared dataset, as "Prepare data" writes it: images or a table, with classes or with a number to
                predict.
            processes_per_node: Ranks that torchrun starts on each node; the number of its GPUs.
            architecture: mlp; resnet or vit, small ones for images; resnet18, resnet34, resnet50, vit_s or vit_b for
                images too; vit_small_patch16 or vit_base_patch16, as weights are published for them; or
                FILE.py:FUNCTION in the folder "model_code". Tables take mlp. The function takes (input_shape,
                num_outputs) and returns a torch.nn.Module for channels-first batches.
            model_code: Folder with your model's code, when "architecture" is FILE.py:FUNCTION; otherwise it has no
                effect.
            initial_model: A model that this trainer, or another one of the same framework, has saved, of the same
                architecture: the training begins with its weights, and with its mean and deviation of the rows. With
                other classes, or another target, its head is new. A run that goes on from a checkpoint has its weights
                from there.
            initial_weights: Folder with one file of published weights to fine-tune, .safetensors or .pth: torchvision's
                or timm's for resnet18, resnet34 or resnet50, timm's for vit_small_patch16 or vit_base_patch16. The last
                layer is new where the number of classes differs. ResNets need pictures of more than 64 pixels. A run
                that goes on from a checkpoint has its weights from there.
            normalization: Mean and deviation by which the model normalises its rows. data: the data's own. imagenet:
                those of torchvision's weights, and of DeiT, DINO and MAE. half: 0.5, those of timm's vision
                transformers. auto: those that the first weights were trained with: of initial_model; for
                initial_weights what timm's config.json beside them says, else imagenet for a ResNet and half for a
                vision transformer; data without either.
            epochs: Passes over the training rows.
            batch_size: Rows in one optimizer step, over all GPUs together. Must be a multiple of GPUs x
                accumulation_steps; the last partial batch of an epoch is left out.
            accumulation_steps: Parts in which each GPU computes its share of a batch, one after the other, to use less
                memory.
            optimizer: Optimization method.
            learning_rate: Highest learning rate, reached after the warm-up.
            momentum: Momentum of sgd, and the first beta of adam and adamw.
            weight_decay: Weight decay of matrices and convolutions; biases and normalisation weights are left out.
                Leave it empty for a value that suits the optimizer: 0.3 for adamw, 0.0005 for sgd, 0 for adam.
            label_smoothing: Share of each label that is spread over all classes while training; keeps the model from
                being too sure, and usually better on new data. 0 turns it off; regression has no use for it.
            clip_norm: Largest norm of the gradient over all parameters; 0 turns clipping off.
            warmup_fraction: Part of all steps during which the learning rate rises from 0, as a fraction.
            schedule: What the learning rate does after the warm-up. Cosine and linear fall to 0 at the end.
            crop_padding: Move each training picture by up to so many pixels in both directions; what comes in is of the
                mean colour. 4 is usual for 32 x 32. 0 turns it off.
            resized_crop: Cut a part of at least this share of each training picture's area, with sides of 3:4 to 4:3 of
                the picture's, and bring it to the picture's size. 0.08 to 0.35 is usual for photographs. 1 turns it
                off.
            horizontal_flip: Share of the training pictures that are mirrored, left to right. 0.5 suits what has no left
                and right; digits and letters do. 0 turns it off.
            color_jitter: Change brightness, contrast and saturation of each training picture by up to this share, and
                the hue by up to a quarter of it as part of the colour circle. 0.4 is usual. 0 turns it off. For
                pictures of uint8.
            rand_augment: RandAugment: so many changes of each training picture, drawn from fourteen (shear, shift,
                rotate, brightness, contrast, colour, sharpness, posterize, solarize, equalize, autocontrast, none). 2
                is usual. 0 turns it off. For pictures of uint8.
            rand_augment_magnitude: How strong the changes of rand_augment are.
            random_erasing: Share of the training pictures in which a rectangle of 2 to 33 % of the area is filled with
                the mean colour. 0.25 is usual. 0 turns it off.
            mixup: Mix each training picture and its label with another's, by a share drawn from Beta(mixup, mixup). 0.2
                is usual; larger mixes more. With cutmix as well, each pair draws which of the two. 0 turns it off.
            cutmix: Put a rectangle of another training picture into each, of a share drawn from Beta(cutmix, cutmix) of
                its area, and mix the labels by the area. 1 is usual. 0 turns it off.
            precision: Arithmetic of the forward and backward pass. bf16 is the best choice on recent GPUs; fp16 scales
                the loss and needs a GPU; fp64 is for exact comparisons.
            gradient_checkpointing: Compute activations again in the backward pass instead of keeping them; less memory,
                about a third more time.
            compile: Compile the model with torch.compile; a minute at the start, faster steps afterwards.
            deterministic: Use only operations of the GPU that repeat their bits, so that the same job, and one that was
                killed and continued, ends with exactly the same weights on GPUs of the same model. Convolutions become
                slower, since cuDNN may not try which of its algorithms is the fastest, and an operation without such a
                form ends the run and is named. Without it, runs on GPUs differ in the last digits. On a CPU it has no
                effect: there the bits are the same in any case.
            sync_batch_norm: Let batch normalization (of resnet18, resnet34, resnet50 and your own model) take its
                statistics over the rows of all GPUs, so that the result does not depend on how many there are; each
                such layer then waits for all GPUs. Without it, each GPU takes those of its own rows (batch_size / GPUs
                / accumulation_steps), so that other numbers of GPUs end with other weights, and the statistics of rank
                0 are validated and saved.
            seed: Seed of the initial weights and of the order of the rows.
            log_every: Steps between two lines of metrics. At these steps the ranks also compare notes: a loss that is
                not finite is acted upon here.
            checkpoint_every: Steps between two checkpoints; 0 makes one at the end of each epoch.
            checkpoint_minutes: Minutes after which another checkpoint is made, besides those of checkpoint_every, at
                the next line of metrics; it is written while the training goes on. 0 makes none.
            keep_checkpoints: Newest checkpoints that are kept; one fewer where there is no room for a further one.
            keep_every: Keep for good the checkpoints of steps that are a multiple of this, too; 0 keeps the newest
                alone.
            verify_checkpoints: Read all bytes of a checkpoint before continuing from it. Without it each tensor is
                checked when it is read, and a damaged one found as well.
            resume_from: Folder of checkpoints of another run to continue from. A run that was interrupted continues
                from its own output "checkpoints" without this. With more epochs than that run had, the further ones are
                trained, at the learning rates of all of them together; where these do not depend on the epochs
                (schedule constant, warmup_fraction 0), the result is that of a run that had so many from the start.
            read: How rows are read. auto: from memory up to 256 MB, at random from the files beyond. memory: all of
                them are held, on the GPU if there is one; encoded pictures as such, on the node. random: from the files
                at random, which a mount of cloud storage is slow at. streaming: whole files one after another, mixed in
                a buffer, in an order of its own that does not depend on the number of GPUs either. Choose it for data
                on a mount that does not fit into memory.
            shuffle_buffer: For streaming: size of the files whose rows are mixed at a time. Each GPU needs half as much
                again of the node's memory, which those of a node share; files are as large as rows_per_shard of the
                preparation says. Data of half its size is shuffled as a whole. An interrupted run is continued only
                with the same.
            loader_workers: Threads of each rank that read batches ahead; 0 reads between two steps. Datasets below 256
                MB are held in memory and read by none, unless pictures are changed at random.
            pin_memory: Copy batches to the GPU from page-locked memory, while it computes. Without a GPU this has no
                effect.
            prefetch: Batches that the reading threads may be ahead.
            init_timeout: Minutes in which all ranks have to have started.
            step_timeout: Minutes after which a rank that waits for the others gives up. One in which nothing moves for
                half of that, 10 seconds at least, no step, batch or file, is named with where it stands, and ends the
                run.
            max_restarts: How often torchrun starts all ranks again after one of them has failed or was stopped. They
                continue from the newest checkpoint in the output checkpoints. 0 leaves that to whoever starts the job
                again.
            min_nodes: Fewest nodes to go on with, in a restart, when others are lost; the first node is always needed,
                and batch_size has to divide over the ranks that are left. Leave it empty to need all of them. It has no
                effect where the service ends the job with the node, as Azure ML does with its own clusters.
        """

class TrainFsdp(CommandComponent):
    def __call__(
        self,
        *,
        data: Data,
        base_model: Data | None = None,
        layers: Whole = 4,
        width: Whole = 128,
        heads: Whole = 4,
        key_value_heads: Whole | None = None,
        feed_forward_width: Whole | None = None,
        context_length: Whole | None = None,
        tie_embeddings: Flag = "false",
        epochs: Whole = 1,
        max_steps: Whole = 0,
        batch_size: Whole = 64,
        accumulation_steps: Whole = 1,
        optimizer: Literal["sgd", "adam", "adamw"] | Text = "adamw",
        learning_rate: Number = 0.003,
        momentum: Number = 0.9,
        beta2: Number = 0.95,
        weight_decay: Number = 0.1,
        label_smoothing: Number = 0,
        clip_norm: Number = 1,
        warmup_fraction: Number = 0.05,
        schedule: Literal["constant", "cosine", "linear"] | Text = "cosine",
        precision: Literal["fp32", "bf16", "fp64"] | Text = "fp32",
        gradient_checkpointing: Flag = "false",
        compile: Flag = "false",
        deterministic: Flag = "false",
        tensor_parallel: Whole = 1,
        pipeline_parallel: Whole = 1,
        pipeline_schedule: Literal["gpipe", "1f1b"] | Text = "1f1b",
        reshard_after_forward: Flag = "true",
        model_weights: Literal["fp32", "bf16", "fp16"] | Text = "fp32",
        max_shard_gb: Number = 5,
        seed: Whole = 0,
        log_every: Whole = 10,
        checkpoint_every: Whole = 0,
        checkpoint_minutes: Number = 10,
        keep_checkpoints: Whole = 2,
        keep_every: Whole = 0,
        verify_checkpoints: Flag = "false",
        resume_from: Data | None = None,
        read: Literal["auto", "memory", "random", "streaming"] | Text = "auto",
        shuffle_buffer: Number = 512,
        loader_workers: Whole = 1,
        pin_memory: Flag = "true",
        prefetch: Whole = 4,
        init_timeout: Number = 10,
        step_timeout: Number = 10,
    ) -> Step[ModelCheckpointsMetricsOutputs]:
        """Trains a language model from scratch that no single GPU could hold: parameters, gradients and optimizer state
        lie in parts on all GPUs (PyTorch's FullyShardedDataParallel, FSDP2). Layers can be divided over the GPUs of a
        node too (tensor_parallel), and the layers over nodes (pipeline_parallel). The batch size is that of all GPUs
        together, so the losses do not depend on how many there are or how they divide the model. A run that was
        interrupted goes on from its last checkpoint, also on another number of GPUs. The model is saved whole in
        MLflow's format.

        Args:
            data: A prepared text for language modeling, as "Prepare text" writes it. Its sequence length and its
                tokenizer are the model's.
            base_model: Folder with a Llama or Mistral to go on from, as transformers' save_pretrained writes it and as
                the trained model has it in artifacts/model/huggingface: config.json and safetensors, whose sizes are
                the model's. Prepare the text with its tokenizer. Each GPU reads the parts that it holds. Leave it empty
                to begin with random weights.
            layers: Blocks of the model, each attention and a perceptron. A multiple of pipeline_parallel.
            width: Size of a token's vector, a multiple of twice the heads. 4 layers of 128 have 0.8 million parameters,
                12 of 768 have 85 million, 32 of 4096 have 6.5 billion; the tokens' own come on top.
            heads: Heads of the attention. A multiple of tensor_parallel.
            key_value_heads: Heads of keys and values, where several heads of queries are to share one (grouped-query
                attention). Must divide the heads and be a multiple of tensor_parallel. Leave it empty for as many as
                heads.
            feed_forward_width: Hidden size of a block's perceptron. Leave it empty for 8/3 of the width.
            context_length: Longest sequence of tokens that the model takes, as long as those of the data at least.
                Leave it empty for the same.
            tie_embeddings: Use one matrix for the tokens that come in and those that go out: fewer parameters, better
                in small models. Not with tensor_parallel or pipeline_parallel.
            epochs: Passes over the training text.
            max_steps: End after so many steps, though the epochs are not over; the learning rate falls over these. 0
                does not. A run that goes on from its checkpoints with more steps makes the rest of the epoch that was
                cut short, in the same order.
            batch_size: Sequences in one optimizer step, over all GPUs together. Must be a multiple of the data-parallel
                degree (GPUs / tensor_parallel / pipeline_parallel) x accumulation_steps; the last partial batch of an
                epoch is left out.
            accumulation_steps: Parts in which each GPU computes its share of a batch, one after the other, to use less
                memory. With pipeline_parallel these are the microbatches: several times as many as stages keep all
                stages busy.
            optimizer: Optimization method.
            learning_rate: Highest learning rate, reached after the warm-up.
            momentum: Momentum of sgd, and the first beta of adam and adamw.
            beta2: Second beta of adam and adamw.
            weight_decay: Weight decay of matrices; norms and embeddings are left out.
            label_smoothing: Share of each token that is spread over the whole vocabulary while training. 0 turns it
                off, and is right where perplexity or bits per byte count.
            clip_norm: Largest norm of the gradient over all parameters; 0 turns clipping off.
            warmup_fraction: Part of all steps during which the learning rate rises from 0, as a fraction.
            schedule: What the learning rate does after the warm-up. Cosine and linear fall to 0 at the end.
            precision: Arithmetic of the forward and backward pass. With bf16, the best choice on recent GPUs, each rank
                computes in bf16 and keeps its parts of parameters, gradients and optimizer state in fp32. fp64 is for
                exact comparisons. fp16 is not offered: it would need its loss scaled, and bf16 does not.
            gradient_checkpointing: Compute activations again in the backward pass instead of keeping them; less memory,
                about a third more time.
            compile: Compile each block with torch.compile; a minute at the start, faster steps afterwards.
            deterministic: Use only operations of the GPU that repeat their bits, so that the same job, and one that was
                killed and continued, ends with exactly the same weights on GPUs of the same model. Convolutions become
                slower, since cuDNN may not try which of its algorithms is the fastest, and an operation without such a
                form ends the run and is named. Without it, runs on GPUs differ in the last digits. On a CPU it has no
                effect: there the bits are the same in any case.
            tensor_parallel: GPUs that share each layer; at most those of a node, since they exchange activations in
                every layer. The sequence is divided over them too. GPUs = data-parallel degree x tensor_parallel x
                pipeline_parallel.
            pipeline_parallel: GPUs that have the layers one after the other; the link between them may be slow.
            pipeline_schedule: Order of the microbatches in a pipeline. gpipe runs all forward passes first; 1f1b
                alternates, so that fewer activations are kept, and needs as many accumulation_steps as stages at least.
            reshard_after_forward: Give a block's parameters up after its forward pass and gather them again for the
                backward pass: least memory (ZeRO 3). false keeps them in between: faster, and more memory (ZeRO 2).
            model_weights: Weights of the saved model. With 16 bits it is half as large, and rounded.
            max_shard_gb: Largest file of the saved model, in units of 1,000,000,000 bytes; a larger model is divided
                into several.
            seed: Seed of the initial weights and of the order of the rows.
            log_every: Steps between two lines of metrics. At these steps the ranks also compare notes: a loss that is
                not finite is acted upon here.
            checkpoint_every: Steps between two checkpoints; 0 makes one at the end of each epoch.
            checkpoint_minutes: Minutes after which another checkpoint is made, besides those of checkpoint_every, at
                the next line of metrics; it is written while the training goes on. 0 makes none.
            keep_checkpoints: Newest checkpoints that are kept; one fewer where there is no room for a further one.
            keep_every: Keep for good the checkpoints of steps that are a multiple of this, too; 0 keeps the newest
                alone.
            verify_checkpoints: Read all bytes of a checkpoint before continuing from it. Without it each tensor is
                checked when it is read, and a damaged one found as well.
            resume_from: Folder of checkpoints of another run of this component to continue from. A run that was
                interrupted continues from its own output "checkpoints" without this. With more epochs or max_steps than
                that run had, the further steps are trained, at the learning rates of all of them together; where these
                do not depend on the number of steps (schedule constant, warmup_fraction 0), the result is that of a run
                that had so many from the start.
            read: How rows are read. auto: from memory up to 256 MB, at random from the files beyond. memory: all of
                them are held, on the GPU if there is one; encoded pictures as such, on the node. random: from the files
                at random, which a mount of cloud storage is slow at. streaming: whole files one after another, mixed in
                a buffer, in an order of its own that does not depend on the number of GPUs either. Choose it for data
                on a mount that does not fit into memory.
            shuffle_buffer: For streaming: size of the files whose rows are mixed at a time. Each GPU needs half as much
                again of the node's memory, which those of a node share; files are as large as rows_per_shard of the
                preparation says. Data of half its size is shuffled as a whole. An interrupted run is continued only
                with the same.
            loader_workers: Threads of each rank that read batches ahead; 0 reads between two steps. Datasets below 256
                MB are held in memory and read by none, unless pictures are changed at random.
            pin_memory: Copy batches to the GPU from page-locked memory, while it computes. Without a GPU this has no
                effect.
            prefetch: Batches that the reading threads may be ahead.
            init_timeout: Minutes in which all ranks have to have started.
            step_timeout: Minutes after which a rank that waits for the others gives up. One in which nothing moves for
                half of that, 10 seconds at least, no step, batch or file, is named with where it stands, and ends the
                run.
        """

class TrainDeepspeed(CommandComponent):
    def __call__(
        self,
        *,
        data: Data,
        architecture: Text = "mlp",
        model_code: Data | None = None,
        initial_model: Data | None = None,
        initial_weights: Data | None = None,
        normalization: Literal["auto", "data", "imagenet", "half"] | Text = "auto",
        base_model: Data | None = None,
        layers: Whole = 4,
        width: Whole = 128,
        heads: Whole = 4,
        key_value_heads: Whole | None = None,
        feed_forward_width: Whole | None = None,
        context_length: Whole | None = None,
        tie_embeddings: Flag = "false",
        epochs: Whole = 15,
        max_steps: Whole = 0,
        batch_size: Whole = 64,
        accumulation_steps: Whole = 1,
        optimizer: Literal["sgd", "adam", "adamw"] | Text = "adamw",
        learning_rate: Number = 0.006,
        momentum: Number = 0.9,
        beta2: Number = 0.999,
        weight_decay: Number | None = None,
        label_smoothing: Number = 0.1,
        clip_norm: Number = 1,
        warmup_fraction: Number = 0.05,
        schedule: Literal["constant", "cosine", "linear"] | Text = "cosine",
        crop_padding: Whole = 0,
        resized_crop: Number = 1,
        horizontal_flip: Number = 0,
        color_jitter: Number = 0,
        rand_augment: Whole = 0,
        rand_augment_magnitude: Whole = 9,
        random_erasing: Number = 0,
        mixup: Number = 0,
        cutmix: Number = 0,
        precision: Literal["fp32", "bf16", "fp16"] | Text = "fp32",
        gradient_checkpointing: Flag = "false",
        compile: Flag = "false",
        deterministic: Flag = "false",
        sync_batch_norm: Flag = "false",
        zero_stage: Whole = 2,
        offload: Literal["none", "optimizer", "all"] | Text = "none",
        config: Data | None = None,
        on_unsupported: Literal["fail", "replace"] | Text = "fail",
        model_weights: Literal["fp32", "bf16", "fp16"] | Text = "fp32",
        max_shard_gb: Number = 5,
        seed: Whole = 0,
        log_every: Whole = 10,
        checkpoint_every: Whole = 0,
        checkpoint_minutes: Number = 10,
        keep_checkpoints: Whole = 2,
        keep_every: Whole = 0,
        verify_checkpoints: Flag = "false",
        resume_from: Data | None = None,
        read: Literal["auto", "memory", "random", "streaming"] | Text = "auto",
        shuffle_buffer: Number = 512,
        loader_workers: Whole = 1,
        pin_memory: Flag = "true",
        prefetch: Whole = 4,
        init_timeout: Number = 10,
        step_timeout: Number = 10,
    ) -> Step[ModelCheckpointsMetricsOutputs]:
        """Trains a model with DeepSpeed: ZeRO keeps the optimizer's states, the gradients and the parameters in shards
        over all GPUs, or in the memory of their nodes, so that larger models fit. Takes images, tables and texts, and
        DeepSpeed's own configuration as a file. Works under the PyTorch and the MPI distribution. The batch size is
        that of all GPUs together, so the result depends neither on how many there are nor on the stage. A run that was
        interrupted and is started again continues from its last checkpoint, also on another number of GPUs. The model
        is saved whole in MLflow's format.

        Args:
            data: A prepared dataset: images or a table with classes or with a number to predict, as "Prepare data"
                writes it, or a text for language modeling, as "Prepare text" writes it.
            architecture: mlp; resnet or vit, small ones for images; resnet18, resnet34, resnet50, vit_s or vit_b for
                images too; vit_small_patch16 or vit_base_patch16, as weights are published for them; or
                FILE.py:FUNCTION in the folder "model_code". Tables take mlp. The function takes (input_shape,
                num_outputs) and returns a torch.nn.Module for channels-first batches. For a text leave it as it is: it
                has a language model of the sizes below.
            model_code: Folder with your model's code, when "architecture" is FILE.py:FUNCTION; otherwise it has no
                effect.
            initial_model: A model that this trainer, or another one of the same framework, has saved, of the same
                architecture: the training begins with its weights, and with its mean and deviation of the rows. With
                other classes, or another target, its head is new. A run that goes on from a checkpoint has its weights
                from there.
            initial_weights: Folder with one file of published weights to fine-tune, .safetensors or .pth: torchvision's
                or timm's for resnet18, resnet34 or resnet50, timm's for vit_small_patch16 or vit_base_patch16. The last
                layer is new where the number of classes differs. ResNets need pictures of more than 64 pixels. A run
                that goes on from a checkpoint has its weights from there.
            normalization: Mean and deviation by which the model normalises its rows. data: the data's own. imagenet:
                those of torchvision's weights, and of DeiT, DINO and MAE. half: 0.5, those of timm's vision
                transformers. auto: those that the first weights were trained with: of initial_model; for
                initial_weights what timm's config.json beside them says, else imagenet for a ResNet and half for a
                vision transformer; data without either.
            base_model: Folder with a Llama or Mistral to go on from, as transformers' save_pretrained writes it and as
                the trained model has it in artifacts/model/huggingface: config.json and safetensors, whose sizes are
                the model's. Prepare the text with its tokenizer. Each GPU reads the parts that it holds. Leave it empty
                to begin with random weights.
            layers: For a text, blocks of the model, each attention and a perceptron. Images and tables have no use for
                it.
            width: For a text, size of a token's vector, a multiple of twice the heads. 4 layers of 128 have 0.8 million
                parameters, 12 of 768 have 85 million, 32 of 4096 have 6.5 billion; the tokens' own come on top.
            heads: For a text, heads of the attention.
            key_value_heads: For a text, heads of keys and values, where several heads of queries are to share one
                (grouped-query attention). Must divide the heads. Leave it empty for as many as heads.
            feed_forward_width: For a text, hidden size of a block's perceptron. Leave it empty for 8/3 of the width.
            context_length: For a text, longest sequence of tokens that the model takes, as long as those of the data at
                least. Leave it empty for the same.
            tie_embeddings: For a text, use one matrix for the tokens that come in and those that go out: fewer
                parameters, better in small models.
            epochs: Passes over the training rows.
            max_steps: End after so many steps, though the epochs are not over; the learning rate falls over these. 0
                does not. A run that goes on from its checkpoints with more steps makes the rest of the epoch that was
                cut short, in the same order.
            batch_size: Rows in one optimizer step, over all GPUs together. Must be a multiple of GPUs x
                accumulation_steps; the last partial batch of an epoch is left out.
            accumulation_steps: Parts in which each GPU computes its share of a batch, one after the other, to use less
                memory.
            optimizer: Optimization method.
            learning_rate: Highest learning rate, reached after the warm-up.
            momentum: Momentum of sgd, and the first beta of adam and adamw.
            beta2: Second beta of adam and adamw.
            weight_decay: Weight decay of matrices and convolutions; biases and normalisation weights are left out.
                Leave it empty for a value that suits the optimizer: 0.3 for adamw, 0.0005 for sgd, 0 for adam.
            label_smoothing: Share of each label that is spread over all classes while training; keeps the model from
                being too sure, and usually better on new data. 0 turns it off; regression has no use for it.
            clip_norm: Largest norm of the gradient over all parameters; 0 turns clipping off.
            warmup_fraction: Part of all steps during which the learning rate rises from 0, as a fraction.
            schedule: What the learning rate does after the warm-up. Cosine and linear fall to 0 at the end.
            crop_padding: Move each training picture by up to so many pixels in both directions; what comes in is of the
                mean colour. 4 is usual for 32 x 32. 0 turns it off.
            resized_crop: Cut a part of at least this share of each training picture's area, with sides of 3:4 to 4:3 of
                the picture's, and bring it to the picture's size. 0.08 to 0.35 is usual for photographs. 1 turns it
                off.
            horizontal_flip: Share of the training pictures that are mirrored, left to right. 0.5 suits what has no left
                and right; digits and letters do. 0 turns it off.
            color_jitter: Change brightness, contrast and saturation of each training picture by up to this share, and
                the hue by up to a quarter of it as part of the colour circle. 0.4 is usual. 0 turns it off. For
                pictures of uint8.
            rand_augment: RandAugment: so many changes of each training picture, drawn from fourteen (shear, shift,
                rotate, brightness, contrast, colour, sharpness, posterize, solarize, equalize, autocontrast, none). 2
                is usual. 0 turns it off. For pictures of uint8.
            rand_augment_magnitude: How strong the changes of rand_augment are.
            random_erasing: Share of the training pictures in which a rectangle of 2 to 33 % of the area is filled with
                the mean colour. 0.25 is usual. 0 turns it off.
            mixup: Mix each training picture and its label with another's, by a share drawn from Beta(mixup, mixup). 0.2
                is usual; larger mixes more. With cutmix as well, each pair draws which of the two. 0 turns it off.
            cutmix: Put a rectangle of another training picture into each, of a share drawn from Beta(cutmix, cutmix) of
                its area, and mix the labels by the area. 1 is usual. 0 turns it off.
            precision: Arithmetic of the forward and backward pass. In bf16 and fp16 the parameters have 16 bits too,
                and the optimizer keeps a copy of them in fp32. bf16 is the best choice on recent GPUs; fp16 scales the
                loss and needs a GPU.
            gradient_checkpointing: Compute activations again in the backward pass instead of keeping them; less memory,
                about a third more time.
            compile: Compile the model with torch.compile; a minute at the start, faster steps afterwards.
            deterministic: Use only operations of the GPU that repeat their bits, so that the same job, and one that was
                killed and continued, ends with exactly the same weights on GPUs of the same model. Convolutions become
                slower, since cuDNN may not try which of its algorithms is the fastest, and an operation without such a
                form ends the run and is named. Without it, runs on GPUs differ in the last digits. On a CPU it has no
                effect: there the bits are the same in any case.
            sync_batch_norm: Let batch normalization (of resnet18, resnet34, resnet50 and your own model) take its
                statistics over the rows of all GPUs, so that the result does not depend on how many there are; each
                such layer then waits for all GPUs. Without it, each GPU takes those of its own rows (batch_size / GPUs
                / accumulation_steps), so that other numbers of GPUs end with other weights, and the statistics of rank
                0 are validated and saved.
            zero_stage: What lies in shards over the GPUs: 1 the optimizer's states, 2 also the gradients, 3 also the
                parameters, 0 nothing. Each needs less memory than the one before; 3 also more communication. The model
                does not depend on it.
            offload: What moves from the GPU to the memory of its node: the optimizer's states with their computation
                (stage 1, 2 and 3), or all, the parameters too (stage 3).
            config: DeepSpeed's own configuration, a JSON file. What it says wins over the inputs here; what it leaves
                out or sets to "auto" comes from them. Batch sizes have to agree. A key that DeepSpeed does not know is
                an error.
            on_unsupported: What to do about settings that this machine cannot follow, such as fp16 without a GPU or an
                optimizer that cannot be compiled. Fail names them; replace takes what comes nearest, with a warning in
                the log.
            model_weights: Weights of the saved model. With 16 bits it is half as large, and rounded.
            max_shard_gb: Largest file of the saved model, in units of 1,000,000,000 bytes; a larger model is divided
                into several.
            seed: Seed of the initial weights and of the order of the rows.
            log_every: Steps between two lines of metrics. At these steps the ranks also compare notes: a loss that is
                not finite is acted upon here.
            checkpoint_every: Steps between two checkpoints; 0 makes one at the end of each epoch.
            checkpoint_minutes: Minutes after which another checkpoint is made, besides those of checkpoint_every, at
                the next line of metrics; it is written while the training goes on. 0 makes none.
            keep_checkpoints: Newest checkpoints that are kept; one fewer where there is no room for a further one.
            keep_every: Keep for good the checkpoints of steps that are a multiple of this, too; 0 keeps the newest
                alone.
            verify_checkpoints: Read all bytes of a checkpoint before continuing from it. Without it each tensor is
                checked when it is read, and a damaged one found as well.
            resume_from: Folder of checkpoints of another run to continue from. A run that was interrupted continues
                from its own output "checkpoints" without this. With more epochs or max_steps than that run had, the
                further steps are trained, at the learning rates of all of them together; where these do not depend on
                the number of steps (schedule constant, warmup_fraction 0), the result is that of a run that had so many
                from the start.
            read: How rows are read. auto: from memory up to 256 MB, at random from the files beyond. memory: all of
                them are held, on the GPU if there is one; encoded pictures as such, on the node. random: from the files
                at random, which a mount of cloud storage is slow at. streaming: whole files one after another, mixed in
                a buffer, in an order of its own that does not depend on the number of GPUs either. Choose it for data
                on a mount that does not fit into memory.
            shuffle_buffer: For streaming: size of the files whose rows are mixed at a time. Each GPU needs half as much
                again of the node's memory, which those of a node share; files are as large as rows_per_shard of the
                preparation says. Data of half its size is shuffled as a whole. An interrupted run is continued only
                with the same.
            loader_workers: Threads of each rank that read batches ahead; 0 reads between two steps. Datasets below 256
                MB are held in memory and read by none, unless pictures are changed at random.
            pin_memory: Copy batches to the GPU from page-locked memory, while it computes. Without a GPU this has no
                effect.
            prefetch: Batches that the reading threads may be ahead.
            init_timeout: Minutes in which all ranks have to have started.
            step_timeout: Minutes after which a rank that waits for the others gives up. One in which nothing moves for
                half of that, 10 seconds at least, no step, batch or file, is named with where it stands, and ends the
                run.
        """

class TrainLightning(CommandComponent):
    def __call__(
        self,
        *,
        data: Data,
        architecture: Text = "mlp",
        module: Text | None = None,
        module_arguments: Text | None = None,
        model_code: Data | None = None,
        initial_model: Data | None = None,
        initial_weights: Data | None = None,
        normalization: Literal["auto", "data", "imagenet", "half"] | Text = "auto",
        epochs: Whole = 15,
        batch_size: Whole = 64,
        accumulation_steps: Whole = 1,
        optimizer: Literal["sgd", "adam", "adamw"] | Text = "adamw",
        learning_rate: Number = 0.006,
        momentum: Number = 0.9,
        weight_decay: Number | None = None,
        label_smoothing: Number = 0.1,
        clip_norm: Number = 1,
        warmup_fraction: Number = 0.05,
        schedule: Literal["constant", "cosine", "linear"] | Text = "cosine",
        crop_padding: Whole = 0,
        resized_crop: Number = 1,
        horizontal_flip: Number = 0,
        color_jitter: Number = 0,
        rand_augment: Whole = 0,
        rand_augment_magnitude: Whole = 9,
        random_erasing: Number = 0,
        mixup: Number = 0,
        cutmix: Number = 0,
        precision: Literal["fp32", "bf16", "fp16", "fp64"] | Text = "fp32",
        gradient_checkpointing: Flag = "false",
        compile: Flag = "false",
        deterministic: Flag = "false",
        sync_batch_norm: Flag = "false",
        seed: Whole = 0,
        log_every: Whole = 10,
        checkpoint_every: Whole = 0,
        checkpoint_minutes: Number = 10,
        keep_checkpoints: Whole = 2,
        keep_every: Whole = 0,
        verify_checkpoints: Flag = "false",
        resume_from: Data | None = None,
        read: Literal["auto", "memory", "random", "streaming"] | Text = "auto",
        shuffle_buffer: Number = 512,
        loader_workers: Whole = 1,
        pin_memory: Flag = "true",
        prefetch: Whole = 4,
        init_timeout: Number = 10,
        step_timeout: Number = 10,
    ) -> Step[ModelCheckpointsMetricsOutputs]:
        """Trains with Lightning's Trainer on every GPU of every node: a model of this library, or any LightningModule
        of yours from a file. Nodes and devices are those that were started; nothing has to be set by hand, under MPI
        either. With a model of this library the result is that of "Train (PyTorch DDP)". A run that was interrupted and
        is started again continues from its last checkpoint and ends with the same weights. The model is saved in
        MLflow's format.

        Args:
            data: A prepared dataset, as "Prepare data" writes it: images or a table, with classes or with a number to
                predict.
            architecture: mlp; resnet or vit, small ones for images; resnet18, resnet34, resnet50, vit_s or vit_b for
                images too; vit_small_patch16 or vit_base_patch16, as weights are published for them; or
                FILE.py:FUNCTION in the folder "model_code". Tables take mlp. The function takes (input_shape,
                num_outputs) and returns a torch.nn.Module for channels-first batches.
            module: FILE.py:CLASS in the folder "model_code": a LightningModule of yours, trained in place of
                "architecture". It defines training_step and configure_optimizers, so that optimizer, learning_rate,
                momentum, weight_decay, label_smoothing, warmup_fraction and schedule have no effect on it; nor has
                clip_norm if it makes its optimizer steps itself. And it defines forward, which is what the saved model
                does. Batches are (rows, y): standardised rows, images channels-first, and classes as whole numbers or
                the targets. What it logs as val_NAME is reported as validation_NAME, over the rows of all ranks.
            module_arguments: JSON object with the arguments of the class, such as {"hidden": 64}. Parameters called
                input_shape and num_outputs get the shape of a row and the number of classes, if they are not in it.
            model_code: Folder with your code, when "architecture" is FILE.py:FUNCTION, or for "module"; otherwise it
                has no effect.
            initial_model: A model that this trainer, or another one of the same framework, has saved, of the same
                architecture: the training begins with its weights, and with its mean and deviation of the rows. With
                other classes, or another target, its head is new. A run that goes on from a checkpoint has its weights
                from there.
            initial_weights: Folder with one file of published weights to fine-tune, .safetensors or .pth: torchvision's
                or timm's for resnet18, resnet34 or resnet50, timm's for vit_small_patch16 or vit_base_patch16. The last
                layer is new where the number of classes differs. ResNets need pictures of more than 64 pixels. A run
                that goes on from a checkpoint has its weights from there.
            normalization: Mean and deviation by which the model normalises its rows. data: the data's own. imagenet:
                those of torchvision's weights, and of DeiT, DINO and MAE. half: 0.5, those of timm's vision
                transformers. auto: those that the first weights were trained with: of initial_model; for
                initial_weights what timm's config.json beside them says, else imagenet for a ResNet and half for a
                vision transformer; data without either.
            epochs: Passes over the training rows.
            batch_size: Rows in one optimizer step, over all GPUs together. Must be a multiple of GPUs x
                accumulation_steps; the last partial batch of an epoch is left out.
            accumulation_steps: Parts in which each GPU computes its share of a batch, one after the other, to use less
                memory.
            optimizer: Optimization method.
            learning_rate: Highest learning rate, reached after the warm-up.
            momentum: Momentum of sgd, and the first beta of adam and adamw.
            weight_decay: Weight decay of matrices and convolutions; biases and normalisation weights are left out.
                Leave it empty for a value that suits the optimizer: 0.3 for adamw, 0.0005 for sgd, 0 for adam.
            label_smoothing: Share of each label that is spread over all classes while training; keeps the model from
                being too sure, and usually better on new data. 0 turns it off; regression has no use for it.
            clip_norm: Largest norm of the gradient over all parameters; 0 turns clipping off.
            warmup_fraction: Part of all steps during which the learning rate rises from 0, as a fraction.
            schedule: What the learning rate does after the warm-up. Cosine and linear fall to 0 at the end.
            crop_padding: Move each training picture by up to so many pixels in both directions; what comes in is of the
                mean colour. 4 is usual for 32 x 32. 0 turns it off.
            resized_crop: Cut a part of at least this share of each training picture's area, with sides of 3:4 to 4:3 of
                the picture's, and bring it to the picture's size. 0.08 to 0.35 is usual for photographs. 1 turns it
                off.
            horizontal_flip: Share of the training pictures that are mirrored, left to right. 0.5 suits what has no left
                and right; digits and letters do. 0 turns it off.
            color_jitter: Change brightness, contrast and saturation of each training picture by up to this share, and
                the hue by up to a quarter of it as part of the colour circle. 0.4 is usual. 0 turns it off. For
                pictures of uint8.
            rand_augment: RandAugment: so many changes of each training picture, drawn from fourteen (shear, shift,
                rotate, brightness, contrast, colour, sharpness, posterize, solarize, equalize, autocontrast, none). 2
                is usual. 0 turns it off. For pictures of uint8.
            rand_augment_magnitude: How strong the changes of rand_augment are.
            random_erasing: Share of the training pictures in which a rectangle of 2 to 33 % of the area is filled with
                the mean colour. 0.25 is usual. 0 turns it off.
            mixup: Mix each training picture and its label with another's, by a share drawn from Beta(mixup, mixup). 0.2
                is usual; larger mixes more. With cutmix as well, each pair draws which of the two. 0 turns it off.
            cutmix: Put a rectangle of another training picture into each, of a share drawn from Beta(cutmix, cutmix) of
                its area, and mix the labels by the area. 1 is usual. 0 turns it off.
            precision: Arithmetic of the forward and backward pass. bf16 is the best choice on recent GPUs; fp16 scales
                the loss and needs a GPU; fp64 is for exact comparisons.
            gradient_checkpointing: Compute activations again in the backward pass instead of keeping them; less memory,
                about a third more time.
            compile: Compile the model with torch.compile; a minute at the start, faster steps afterwards.
            deterministic: Use only operations of the GPU that repeat their bits, so that the same job, and one that was
                killed and continued, ends with exactly the same weights on GPUs of the same model. Convolutions become
                slower, since cuDNN may not try which of its algorithms is the fastest, and an operation without such a
                form ends the run and is named. Without it, runs on GPUs differ in the last digits. On a CPU it has no
                effect: there the bits are the same in any case.
            sync_batch_norm: Let batch normalization (of resnet18, resnet34, resnet50 and your own model) take its
                statistics over the rows of all GPUs, so that the result does not depend on how many there are; each
                such layer then waits for all GPUs. Without it, each GPU takes those of its own rows (batch_size / GPUs
                / accumulation_steps), so that other numbers of GPUs end with other weights, and the statistics of rank
                0 are validated and saved.
            seed: Seed of the initial weights and of the order of the rows.
            log_every: Steps between two lines of metrics. At these steps the ranks also compare notes: a loss that is
                not finite is acted upon here.
            checkpoint_every: Steps between two checkpoints; 0 makes one at the end of each epoch.
            checkpoint_minutes: Minutes after which another checkpoint is made, besides those of checkpoint_every, at
                the next line of metrics; it is written while the training goes on. 0 makes none.
            keep_checkpoints: Newest checkpoints that are kept; one fewer where there is no room for a further one.
            keep_every: Keep for good the checkpoints of steps that are a multiple of this, too; 0 keeps the newest
                alone.
            verify_checkpoints: Read all bytes of a checkpoint before continuing from it. Without it each tensor is
                checked when it is read, and a damaged one found as well.
            resume_from: Folder of checkpoints of another run to continue from. A run that was interrupted continues
                from its own output "checkpoints" without this. With more epochs than that run had, the further ones are
                trained, at the learning rates of all of them together; where these do not depend on the epochs
                (schedule constant, warmup_fraction 0), the result is that of a run that had so many from the start.
            read: How rows are read. auto: from memory up to 256 MB, at random from the files beyond. memory: all of
                them are held, on the GPU if there is one; encoded pictures as such, on the node. random: from the files
                at random, which a mount of cloud storage is slow at. streaming: whole files one after another, mixed in
                a buffer, in an order of its own that does not depend on the number of GPUs either. Choose it for data
                on a mount that does not fit into memory.
            shuffle_buffer: For streaming: size of the files whose rows are mixed at a time. Each GPU needs half as much
                again of the node's memory, which those of a node share; files are as large as rows_per_shard of the
                preparation says. Data of half its size is shuffled as a whole. An interrupted run is continued only
                with the same.
            loader_workers: Threads of each rank that read batches ahead; 0 reads between two steps. Datasets below 256
                MB are held in memory and read by none, unless pictures are changed at random.
            pin_memory: Copy batches to the GPU from page-locked memory, while it computes. Without a GPU this has no
                effect.
            prefetch: Batches that the reading threads may be ahead.
            init_timeout: Minutes in which all ranks have to have started.
            step_timeout: Minutes after which a rank that waits for the others gives up. One in which nothing moves for
                half of that, 10 seconds at least, no step, batch or file, is named with where it stands, and ends the
                run.
        """

class TrainTransformers(CommandComponent):
    def __call__(
        self,
        *,
        data: Data,
        base_model: Data | None = None,
        base_config: Data | None = None,
        epochs: Whole = 3,
        batch_size: Whole = 32,
        accumulation_steps: Whole = 1,
        optimizer: Literal["sgd", "adam", "adamw"] | Text = "adamw",
        learning_rate: Number = 5e-05,
        momentum: Number = 0.9,
        weight_decay: Number = 0.01,
        label_smoothing: Number = 0.1,
        clip_norm: Number = 1,
        warmup_fraction: Number = 0.05,
        schedule: Literal["constant", "cosine", "linear"] | Text = "cosine",
        precision: Literal["fp32", "bf16", "fp16"] | Text = "fp32",
        gradient_checkpointing: Flag = "false",
        deterministic: Flag = "false",
        sharding: Literal["none", "fsdp", "deepspeed"] | Text = "none",
        model_weights: Literal["fp32", "bf16", "fp16"] | Text = "fp32",
        max_shard_gb: Number = 5,
        seed: Whole = 0,
        log_every: Whole = 10,
        checkpoint_every: Whole = 0,
        checkpoint_minutes: Number = 10,
        keep_checkpoints: Whole = 2,
        keep_every: Whole = 0,
        verify_checkpoints: Flag = "false",
        resume_from: Data | None = None,
        read: Literal["auto", "memory", "random", "streaming"] | Text = "auto",
        shuffle_buffer: Number = 512,
        loader_workers: Whole = 1,
        pin_memory: Flag = "true",
        prefetch: Whole = 4,
        init_timeout: Number = 10,
        step_timeout: Number = 10,
    ) -> Step[ModelCheckpointsMetricsOutputs]:
        """Fine-tunes a model of Hugging Face's transformers with its Trainer on every GPU of every node: to classify
        texts, or to go on writing them. The model comes from a folder, or begins with random weights from a
        configuration. Nothing in a folder is run and no pickle is read. The batch size is that of all GPUs together. A
        run that was interrupted and is started again continues from its last checkpoint and ends with the same weights.
        The model is saved in MLflow's format, with its tokenizer, and takes texts.

        Args:
            data: A prepared text, as "Prepare text" writes it, for text_classification or for language_modeling.
                Prepare it with the base model's folder as tokenizer.
            base_model: Folder with the model to go on from: config.json, model.safetensors and tokenizer.json, as
                save_pretrained writes them. A head for the data's classes is new if the model has none. Leave it empty
                to begin with random weights.
            base_config: Folder with the config.json of a model that begins with random weights. Leave it empty as well
                for a small model: 2 layers of ModernBERT to classify, 4 of Llama to write, with vectors of 128.
            epochs: Passes over the training rows.
            batch_size: Rows in one optimizer step, over all GPUs together. Must be a multiple of GPUs x
                accumulation_steps; the last partial batch of an epoch is left out.
            accumulation_steps: Parts in which each GPU computes its share of a batch, one after the other, to use less
                memory.
            optimizer: Optimization method.
            learning_rate: Highest learning rate, reached after the warm-up. The default suits a trained model; one that
                begins with random weights wants ten times as much or more.
            momentum: Momentum of sgd, and the first beta of adam and adamw.
            weight_decay: Weight decay of matrices; biases, normalisation weights and embeddings are left out.
            label_smoothing: Share of each label that is spread over all classes while training; keeps the model from
                being too sure, and usually better on new data. 0 turns it off; regression has no use for it.
            clip_norm: Largest norm of the gradient over all parameters; 0 turns clipping off.
            warmup_fraction: Part of all steps during which the learning rate rises from 0, as a fraction.
            schedule: What the learning rate does after the warm-up. Cosine and linear fall to 0 at the end.
            precision: Arithmetic of the forward and backward pass. bf16 is the best choice on recent GPUs; fp16 scales
                the loss and needs a GPU.
            gradient_checkpointing: Compute activations again in the backward pass instead of keeping them; less memory,
                about a third more time.
            deterministic: Use only operations of the GPU that repeat their bits, so that the same job, and one that was
                killed and continued, ends with exactly the same weights on GPUs of the same model. Convolutions become
                slower, since cuDNN may not try which of its algorithms is the fastest, and an operation without such a
                form ends the run and is named. Without it, runs on GPUs differ in the last digits. On a CPU it has no
                effect: there the bits are the same in any case.
            sharding: How a model that is too large for one GPU is divided among all. fsdp: weights, gradients and the
                optimizer's states, by PyTorch. deepspeed: gradients and states, by ZeRO stage 2. The result does not
                change.
            model_weights: Weights of the saved model. With 16 bits it is half as large, and rounded.
            max_shard_gb: Largest file of the saved model, in units of 1,000,000,000 bytes; a larger model is divided
                into several.
            seed: Seed of the initial weights and of the order of the rows.
            log_every: Steps between two lines of metrics. At these steps the ranks also compare notes: a loss that is
                not finite is acted upon here.
            checkpoint_every: Steps between two checkpoints; 0 makes one at the end of each epoch.
            checkpoint_minutes: Minutes after which another checkpoint is made, besides those of checkpoint_every, at
                the next line of metrics; it is written while the training goes on. 0 makes none.
            keep_checkpoints: Newest checkpoints that are kept; one fewer where there is no room for a further one.
            keep_every: Keep for good the checkpoints of steps that are a multiple of this, too; 0 keeps the newest
                alone.
            verify_checkpoints: Read all bytes of a checkpoint before continuing from it. Without it each tensor is
                checked when it is read, and a damaged one found as well.
            resume_from: Folder of checkpoints of another run to continue from. A run that was interrupted continues
                from its own output "checkpoints" without this. With more epochs than that run had, the further ones are
                trained, at the learning rates of all of them together; where these do not depend on the epochs
                (schedule constant, warmup_fraction 0), the result is that of a run that had so many from the start.
            read: How rows are read. auto: from memory up to 256 MB, at random from the files beyond. memory: all of
                them are held, on the GPU if there is one; encoded pictures as such, on the node. random: from the files
                at random, which a mount of cloud storage is slow at. streaming: whole files one after another, mixed in
                a buffer, in an order of its own that does not depend on the number of GPUs either. Choose it for data
                on a mount that does not fit into memory.
            shuffle_buffer: For streaming: size of the files whose rows are mixed at a time. Each GPU needs half as much
                again of the node's memory, which those of a node share; files are as large as rows_per_shard of the
                preparation says. Data of half its size is shuffled as a whole. An interrupted run is continued only
                with the same.
            loader_workers: Threads of each rank that read batches ahead; 0 reads between two steps. Datasets of
                language modeling below 256 MB are held in memory and read by none.
            pin_memory: Copy batches to the GPU from page-locked memory, while it computes. Without a GPU this has no
                effect.
            prefetch: Batches that the reading threads may be ahead.
            init_timeout: Minutes in which all ranks have to have started.
            step_timeout: Minutes after which a rank that waits for the others gives up. One in which nothing moves for
                half of that, 10 seconds at least, no step, batch or file, is named with where it stands, and ends the
                run.
        """

class TrainHorovod(CommandComponent):
    def __call__(
        self,
        *,
        data: Data,
        architecture: Text = "mlp",
        model_code: Data | None = None,
        initial_model: Data | None = None,
        initial_weights: Data | None = None,
        normalization: Literal["auto", "data", "imagenet", "half"] | Text = "auto",
        epochs: Whole = 15,
        batch_size: Whole = 64,
        accumulation_steps: Whole = 1,
        optimizer: Literal["sgd", "adam", "adamw"] | Text = "adamw",
        learning_rate: Number = 0.006,
        momentum: Number = 0.9,
        weight_decay: Number | None = None,
        label_smoothing: Number = 0.1,
        clip_norm: Number = 1,
        warmup_fraction: Number = 0.05,
        schedule: Literal["constant", "cosine", "linear"] | Text = "cosine",
        crop_padding: Whole = 0,
        resized_crop: Number = 1,
        horizontal_flip: Number = 0,
        color_jitter: Number = 0,
        rand_augment: Whole = 0,
        rand_augment_magnitude: Whole = 9,
        random_erasing: Number = 0,
        mixup: Number = 0,
        cutmix: Number = 0,
        precision: Literal["fp32", "bf16", "fp16", "fp64"] | Text = "fp32",
        gradient_checkpointing: Flag = "false",
        compile: Flag = "false",
        deterministic: Flag = "false",
        sync_batch_norm: Flag = "false",
        seed: Whole = 0,
        log_every: Whole = 10,
        checkpoint_every: Whole = 0,
        checkpoint_minutes: Number = 10,
        keep_checkpoints: Whole = 2,
        keep_every: Whole = 0,
        verify_checkpoints: Flag = "false",
        resume_from: Data | None = None,
        read: Literal["auto", "memory", "random", "streaming"] | Text = "auto",
        shuffle_buffer: Number = 512,
        loader_workers: Whole = 1,
        pin_memory: Flag = "true",
        prefetch: Whole = 4,
        init_timeout: Number = 10,
        step_timeout: Number = 10,
    ) -> Step[ModelCheckpointsMetricsOutputs]:
        """Trains a model on every GPU of every node with Horovod and PyTorch, started by MPI. Choose this one where
        Horovod is your team's way to train, or to compare it with DistributedDataParallel: the inputs are those of
        "Train (PyTorch DDP)", and so are the weights at the end. The batch size is that of all GPUs together. A run
        that was interrupted and is started again continues from its last checkpoint. The model is saved in MLflow's
        format and needs no code of yours to be deployed.

        Args:
            data: A prepared dataset, as "Prepare data" writes it: images or a table, with classes or with a number to
                predict.
            architecture: mlp; resnet or vit, small ones for images; resnet18, resnet34, resnet50, vit_s or vit_b for
                images too; vit_small_patch16 or vit_base_patch16, as weights are published for them; or
                FILE.py:FUNCTION in the folder "model_code". Tables take mlp. The function takes (input_shape,
                num_outputs) and returns a torch.nn.Module for channels-first batches.
            model_code: Folder with your model's code, when "architecture" is FILE.py:FUNCTION; otherwise it has no
                effect.
            initial_model: A model that this trainer, or another one of the same framework, has saved, of the same
                architecture: the training begins with its weights, and with its mean and deviation of the rows. With
                other classes, or another target, its head is new. A run that goes on from a checkpoint has its weights
                from there.
            initial_weights: Folder with one file of published weights to fine-tune, .safetensors or .pth: torchvision's
                or timm's for resnet18, resnet34 or resnet50, timm's for vit_small_patch16 or vit_base_patch16. The last
                layer is new where the number of classes differs. ResNets need pictures of more than 64 pixels. A run
                that goes on from a checkpoint has its weights from there.
            normalization: Mean and deviation by which the model normalises its rows. data: the data's own. imagenet:
                those of torchvision's weights, and of DeiT, DINO and MAE. half: 0.5, those of timm's vision
                transformers. auto: those that the first weights were trained with: of initial_model; for
                initial_weights what timm's config.json beside them says, else imagenet for a ResNet and half for a
                vision transformer; data without either.
            epochs: Passes over the training rows.
            batch_size: Rows in one optimizer step, over all GPUs together. Must be a multiple of GPUs x
                accumulation_steps; the last partial batch of an epoch is left out.
            accumulation_steps: Parts in which each GPU computes its share of a batch, one after the other, to use less
                memory.
            optimizer: Optimization method.
            learning_rate: Highest learning rate, reached after the warm-up.
            momentum: Momentum of sgd, and the first beta of adam and adamw.
            weight_decay: Weight decay of matrices and convolutions; biases and normalisation weights are left out.
                Leave it empty for a value that suits the optimizer: 0.3 for adamw, 0.0005 for sgd, 0 for adam.
            label_smoothing: Share of each label that is spread over all classes while training; keeps the model from
                being too sure, and usually better on new data. 0 turns it off; regression has no use for it.
            clip_norm: Largest norm of the gradient over all parameters; 0 turns clipping off.
            warmup_fraction: Part of all steps during which the learning rate rises from 0, as a fraction.
            schedule: What the learning rate does after the warm-up. Cosine and linear fall to 0 at the end.
            crop_padding: Move each training picture by up to so many pixels in both directions; what comes in is of the
                mean colour. 4 is usual for 32 x 32. 0 turns it off.
            resized_crop: Cut a part of at least this share of each training picture's area, with sides of 3:4 to 4:3 of
                the picture's, and bring it to the picture's size. 0.08 to 0.35 is usual for photographs. 1 turns it
                off.
            horizontal_flip: Share of the training pictures that are mirrored, left to right. 0.5 suits what has no left
                and right; digits and letters do. 0 turns it off.
            color_jitter: Change brightness, contrast and saturation of each training picture by up to this share, and
                the hue by up to a quarter of it as part of the colour circle. 0.4 is usual. 0 turns it off. For
                pictures of uint8.
            rand_augment: RandAugment: so many changes of each training picture, drawn from fourteen (shear, shift,
                rotate, brightness, contrast, colour, sharpness, posterize, solarize, equalize, autocontrast, none). 2
                is usual. 0 turns it off. For pictures of uint8.
            rand_augment_magnitude: How strong the changes of rand_augment are.
            random_erasing: Share of the training pictures in which a rectangle of 2 to 33 % of the area is filled with
                the mean colour. 0.25 is usual. 0 turns it off.
            mixup: Mix each training picture and its label with another's, by a share drawn from Beta(mixup, mixup). 0.2
                is usual; larger mixes more. With cutmix as well, each pair draws which of the two. 0 turns it off.
            cutmix: Put a rectangle of another training picture into each, of a share drawn from Beta(cutmix, cutmix) of
                its area, and mix the labels by the area. 1 is usual. 0 turns it off.
            precision: Arithmetic of the forward and backward pass. bf16 is the best choice on recent GPUs; fp16 scales
                the loss and needs a GPU; fp64 is for exact comparisons.
            gradient_checkpointing: Compute activations again in the backward pass instead of keeping them; less memory,
                about a third more time.
            compile: Compile the model with torch.compile; a minute at the start, faster steps afterwards.
            deterministic: Use only operations of the GPU that repeat their bits, so that the same job, and one that was
                killed and continued, ends with exactly the same weights on GPUs of the same model. Convolutions become
                slower, since cuDNN may not try which of its algorithms is the fastest, and an operation without such a
                form ends the run and is named. Without it, runs on GPUs differ in the last digits. On a CPU it has no
                effect: there the bits are the same in any case.
            sync_batch_norm: Let batch normalization (of resnet18, resnet34, resnet50 and your own model) take its
                statistics over the rows of all GPUs, so that the result does not depend on how many there are; each
                such layer then waits for all GPUs. Without it, each GPU takes those of its own rows (batch_size / GPUs
                / accumulation_steps), so that other numbers of GPUs end with other weights, and the statistics of rank
                0 are validated and saved.
            seed: Seed of the initial weights and of the order of the rows.
            log_every: Steps between two lines of metrics. At these steps the ranks also compare notes: a loss that is
                not finite is acted upon here.
            checkpoint_every: Steps between two checkpoints; 0 makes one at the end of each epoch.
            checkpoint_minutes: Minutes after which another checkpoint is made, besides those of checkpoint_every, at
                the next line of metrics; it is written while the training goes on. 0 makes none.
            keep_checkpoints: Newest checkpoints that are kept; one fewer where there is no room for a further one.
            keep_every: Keep for good the checkpoints of steps that are a multiple of this, too; 0 keeps the newest
                alone.
            verify_checkpoints: Read all bytes of a checkpoint before continuing from it. Without it each tensor is
                checked when it is read, and a damaged one found as well.
            resume_from: Folder of checkpoints of another run to continue from. A run that was interrupted continues
                from its own output "checkpoints" without this. With more epochs than that run had, the further ones are
                trained, at the learning rates of all of them together; where these do not depend on the epochs
                (schedule constant, warmup_fraction 0), the result is that of a run that had so many from the start.
            read: How rows are read. auto: from memory up to 256 MB, at random from the files beyond. memory: all of
                them are held, on the GPU if there is one; encoded pictures as such, on the node. random: from the files
                at random, which a mount of cloud storage is slow at. streaming: whole files one after another, mixed in
                a buffer, in an order of its own that does not depend on the number of GPUs either. Choose it for data
                on a mount that does not fit into memory.
            shuffle_buffer: For streaming: size of the files whose rows are mixed at a time. Each GPU needs half as much
                again of the node's memory, which those of a node share; files are as large as rows_per_shard of the
                preparation says. Data of half its size is shuffled as a whole. An interrupted run is continued only
                with the same.
            loader_workers: Threads of each rank that read batches ahead; 0 reads between two steps. Datasets below 256
                MB are held in memory and read by none, unless pictures are changed at random.
            pin_memory: Copy batches to the GPU from page-locked memory, while it computes. Without a GPU this has no
                effect.
            prefetch: Batches that the reading threads may be ahead.
            init_timeout: Minutes in which all ranks have to have started.
            step_timeout: Minutes after which a rank that waits for the others gives up. One in which nothing moves for
                half of that, 10 seconds at least, no step, batch or file, is named with where it stands, and ends the
                run.
        """

class TrainHorovodKeras(CommandComponent):
    def __call__(
        self,
        *,
        data: Data,
        architecture: Text = "mlp",
        model_code: Data | None = None,
        initial_model: Data | None = None,
        epochs: Whole = 15,
        batch_size: Whole = 64,
        accumulation_steps: Whole = 1,
        optimizer: Literal["sgd", "adam", "adamw"] | Text = "adamw",
        learning_rate: Number = 0.006,
        momentum: Number = 0.9,
        weight_decay: Number | None = None,
        label_smoothing: Number = 0.1,
        clip_norm: Number = 1,
        warmup_fraction: Number = 0.05,
        schedule: Literal["constant", "cosine", "linear"] | Text = "cosine",
        crop_padding: Whole = 0,
        resized_crop: Number = 1,
        horizontal_flip: Number = 0,
        color_jitter: Number = 0,
        rand_augment: Whole = 0,
        rand_augment_magnitude: Whole = 9,
        random_erasing: Number = 0,
        mixup: Number = 0,
        cutmix: Number = 0,
        precision: Literal["fp32", "bf16", "fp64"] | Text = "fp32",
        compile: Flag = "false",
        deterministic: Flag = "false",
        seed: Whole = 0,
        log_every: Whole = 10,
        checkpoint_every: Whole = 0,
        checkpoint_minutes: Number = 10,
        keep_checkpoints: Whole = 2,
        keep_every: Whole = 0,
        verify_checkpoints: Flag = "false",
        resume_from: Data | None = None,
        read: Literal["auto", "memory", "random", "streaming"] | Text = "auto",
        shuffle_buffer: Number = 512,
        loader_workers: Whole = 1,
        prefetch: Whole = 4,
        init_timeout: Number = 10,
        step_timeout: Number = 10,
    ) -> Step[ModelCheckpointsMetricsOutputs]:
        """Trains a Keras model on every GPU of every node with Horovod and TensorFlow, started by MPI. Choose this one
        for Keras models on nodes with several GPUs. The batch size is that of all GPUs together, so the result does not
        depend on how many there are. A run that was interrupted and is started again continues from its last
        checkpoint. The model is saved in MLflow's format and needs no code of yours to be deployed.

        Args:
            data: A prepared dataset, as "Prepare data" writes it: images or a table, with classes or with a number to
                predict.
            architecture: The network, in Keras: mlp; resnet, a small one for images; resnet50 for images of 32 x 32 and
                more; or FILE.py:FUNCTION in the folder "model_code". Tables take mlp. The function takes (input_shape,
                num_outputs), channels last, and returns a keras.Model. A BatchNormalization in it (resnet50 has some)
                takes the statistics of its GPU's own rows (batch_size / GPUs / accumulation_steps), so that other
                numbers of GPUs end with other weights; those of rank 0 are validated and saved.
            model_code: Folder with your model's code, when "architecture" is FILE.py:FUNCTION; otherwise it has no
                effect.
            initial_model: A model that this trainer, or another one of the same framework, has saved, of the same
                architecture: the training begins with its weights, and with its mean and deviation of the rows. With
                other classes, or another target, its head is new. A run that goes on from a checkpoint has its weights
                from there.
            epochs: Passes over the training rows.
            batch_size: Rows in one optimizer step, over all GPUs together. Must be a multiple of GPUs x
                accumulation_steps; the last partial batch of an epoch is left out.
            accumulation_steps: Parts in which each GPU computes its share of a batch, one after the other, to use less
                memory.
            optimizer: Optimization method.
            learning_rate: Highest learning rate, reached after the warm-up.
            momentum: Momentum of sgd, and the first beta of adam and adamw.
            weight_decay: Weight decay of matrices and convolutions; biases and normalisation weights are left out.
                Leave it empty for a value that suits the optimizer: 0.3 for adamw, 0.0005 for sgd, 0 for adam.
            label_smoothing: Share of each label that is spread over all classes while training; keeps the model from
                being too sure, and usually better on new data. 0 turns it off; regression has no use for it.
            clip_norm: Largest norm of the gradient over all parameters; 0 turns clipping off.
            warmup_fraction: Part of all steps during which the learning rate rises from 0, as a fraction.
            schedule: What the learning rate does after the warm-up. Cosine and linear fall to 0 at the end.
            crop_padding: Move each training picture by up to so many pixels in both directions; what comes in is of the
                mean colour. 4 is usual for 32 x 32. 0 turns it off.
            resized_crop: Cut a part of at least this share of each training picture's area, with sides of 3:4 to 4:3 of
                the picture's, and bring it to the picture's size. 0.08 to 0.35 is usual for photographs. 1 turns it
                off.
            horizontal_flip: Share of the training pictures that are mirrored, left to right. 0.5 suits what has no left
                and right; digits and letters do. 0 turns it off.
            color_jitter: Change brightness, contrast and saturation of each training picture by up to this share, and
                the hue by up to a quarter of it as part of the colour circle. 0.4 is usual. 0 turns it off. For
                pictures of uint8.
            rand_augment: RandAugment: so many changes of each training picture, drawn from fourteen (shear, shift,
                rotate, brightness, contrast, colour, sharpness, posterize, solarize, equalize, autocontrast, none). 2
                is usual. 0 turns it off. For pictures of uint8.
            rand_augment_magnitude: How strong the changes of rand_augment are.
            random_erasing: Share of the training pictures in which a rectangle of 2 to 33 % of the area is filled with
                the mean colour. 0.25 is usual. 0 turns it off.
            mixup: Mix each training picture and its label with another's, by a share drawn from Beta(mixup, mixup). 0.2
                is usual; larger mixes more. With cutmix as well, each pair draws which of the two. 0 turns it off.
            cutmix: Put a rectangle of another training picture into each, of a share drawn from Beta(cutmix, cutmix) of
                its area, and mix the labels by the area. 1 is usual. 0 turns it off.
            precision: Arithmetic of the forward and backward pass. bf16 is the best choice on recent GPUs; fp64 is for
                exact comparisons. fp16 is not offered: it would need its loss scaled, and bf16 does not.
            compile: Compile the forward and backward pass with XLA; some time at the start, faster steps afterwards.
            deterministic: Use only operations of the GPU that repeat their bits, so that the same job, and one that was
                killed and continued, ends with exactly the same weights on GPUs of the same model. Convolutions become
                slower, since cuDNN may not try which of its algorithms is the fastest, and an operation without such a
                form ends the run and is named. Without it, runs on GPUs differ in the last digits. On a CPU it has no
                effect: there the bits are the same in any case.
            seed: Seed of the initial weights and of the order of the rows.
            log_every: Steps between two lines of metrics. At these steps the ranks also compare notes: a loss that is
                not finite is acted upon here.
            checkpoint_every: Steps between two checkpoints; 0 makes one at the end of each epoch.
            checkpoint_minutes: Minutes after which another checkpoint is made, besides those of checkpoint_every, at
                the next line of metrics; it is written while the training goes on. 0 makes none.
            keep_checkpoints: Newest checkpoints that are kept; one fewer where there is no room for a further one.
            keep_every: Keep for good the checkpoints of steps that are a multiple of this, too; 0 keeps the newest
                alone.
            verify_checkpoints: Read all bytes of a checkpoint before continuing from it. Without it each tensor is
                checked when it is read, and a damaged one found as well.
            resume_from: Folder of checkpoints of another run to continue from. A run that was interrupted continues
                from its own output "checkpoints" without this. With more epochs than that run had, the further ones are
                trained, at the learning rates of all of them together; where these do not depend on the epochs
                (schedule constant, warmup_fraction 0), the result is that of a run that had so many from the start.
            read: How rows are read. auto: from memory up to 256 MB, at random from the files beyond. memory: all of
                them are held, on the GPU if there is one; encoded pictures as such, on the node. random: from the files
                at random, which a mount of cloud storage is slow at. streaming: whole files one after another, mixed in
                a buffer, in an order of its own that does not depend on the number of GPUs either. Choose it for data
                on a mount that does not fit into memory.
            shuffle_buffer: For streaming: size of the files whose rows are mixed at a time. Each GPU needs half as much
                again of the node's memory, which those of a node share; files are as large as rows_per_shard of the
                preparation says. Data of half its size is shuffled as a whole. An interrupted run is continued only
                with the same.
            loader_workers: Threads of each process that read batches ahead; 0 reads between two steps.
            prefetch: Batches that the reading threads may be ahead.
            init_timeout: Minutes in which all ranks have to have started.
            step_timeout: Minutes after which a rank that waits for the others gives up. One in which nothing moves for
                half of that, 10 seconds at least, no step, batch or file, is named with where it stands, and ends the
                run.
        """

class TrainTfMultiworker(CommandComponent):
    def __call__(
        self,
        *,
        data: Data,
        architecture: Text = "mlp",
        model_code: Data | None = None,
        initial_model: Data | None = None,
        epochs: Whole = 15,
        batch_size: Whole = 64,
        accumulation_steps: Whole = 1,
        optimizer: Literal["sgd", "adam", "adamw"] | Text = "adamw",
        learning_rate: Number = 0.006,
        momentum: Number = 0.9,
        weight_decay: Number | None = None,
        label_smoothing: Number = 0.1,
        clip_norm: Number = 1,
        warmup_fraction: Number = 0.05,
        schedule: Literal["constant", "cosine", "linear"] | Text = "cosine",
        crop_padding: Whole = 0,
        resized_crop: Number = 1,
        horizontal_flip: Number = 0,
        color_jitter: Number = 0,
        rand_augment: Whole = 0,
        rand_augment_magnitude: Whole = 9,
        random_erasing: Number = 0,
        mixup: Number = 0,
        cutmix: Number = 0,
        precision: Literal["fp32", "bf16", "fp64"] | Text = "fp32",
        compile: Flag = "false",
        deterministic: Flag = "false",
        seed: Whole = 0,
        log_every: Whole = 10,
        checkpoint_every: Whole = 0,
        checkpoint_minutes: Number = 10,
        keep_checkpoints: Whole = 2,
        keep_every: Whole = 0,
        verify_checkpoints: Flag = "false",
        resume_from: Data | None = None,
        read: Literal["auto", "memory", "random", "streaming"] | Text = "auto",
        shuffle_buffer: Number = 512,
        loader_workers: Whole = 1,
        prefetch: Whole = 4,
        init_timeout: Number = 10,
        step_timeout: Number = 10,
    ) -> Step[ModelCheckpointsMetricsOutputs]:
        """Trains a Keras model on every GPU of every node with TensorFlow's MultiWorkerMirroredStrategy, one process
        for each node. Choose this one for Keras models where TensorFlow should need nothing beside itself. The batch
        size is that of all GPUs together, so the result does not depend on how many there are. A run that was
        interrupted and is started again continues from its last checkpoint. The model is saved in MLflow's format and
        needs no code of yours to be deployed.

        Args:
            data: A prepared dataset, as "Prepare data" writes it: images or a table, with classes or with a number to
                predict.
            architecture: The network, in Keras: mlp; resnet, a small one for images; resnet50 for images of 32 x 32 and
                more; or FILE.py:FUNCTION in the folder "model_code". Tables take mlp. The function takes (input_shape,
                num_outputs), channels last, and returns a keras.Model. A BatchNormalization in it (resnet50 has some)
                takes the statistics of its GPU's own rows (batch_size / GPUs / accumulation_steps), so that other
                numbers of GPUs end with other weights; those of rank 0 are validated and saved.
            model_code: Folder with your model's code, when "architecture" is FILE.py:FUNCTION; otherwise it has no
                effect.
            initial_model: A model that this trainer, or another one of the same framework, has saved, of the same
                architecture: the training begins with its weights, and with its mean and deviation of the rows. With
                other classes, or another target, its head is new. A run that goes on from a checkpoint has its weights
                from there.
            epochs: Passes over the training rows.
            batch_size: Rows in one optimizer step, over all GPUs together. Must be a multiple of GPUs x
                accumulation_steps; the last partial batch of an epoch is left out.
            accumulation_steps: Parts in which each GPU computes its share of a batch, one after the other, to use less
                memory.
            optimizer: Optimization method.
            learning_rate: Highest learning rate, reached after the warm-up.
            momentum: Momentum of sgd, and the first beta of adam and adamw.
            weight_decay: Weight decay of matrices and convolutions; biases and normalisation weights are left out.
                Leave it empty for a value that suits the optimizer: 0.3 for adamw, 0.0005 for sgd, 0 for adam.
            label_smoothing: Share of each label that is spread over all classes while training; keeps the model from
                being too sure, and usually better on new data. 0 turns it off; regression has no use for it.
            clip_norm: Largest norm of the gradient over all parameters; 0 turns clipping off.
            warmup_fraction: Part of all steps during which the learning rate rises from 0, as a fraction.
            schedule: What the learning rate does after the warm-up. Cosine and linear fall to 0 at the end.
            crop_padding: Move each training picture by up to so many pixels in both directions; what comes in is of the
                mean colour. 4 is usual for 32 x 32. 0 turns it off.
            resized_crop: Cut a part of at least this share of each training picture's area, with sides of 3:4 to 4:3 of
                the picture's, and bring it to the picture's size. 0.08 to 0.35 is usual for photographs. 1 turns it
                off.
            horizontal_flip: Share of the training pictures that are mirrored, left to right. 0.5 suits what has no left
                and right; digits and letters do. 0 turns it off.
            color_jitter: Change brightness, contrast and saturation of each training picture by up to this share, and
                the hue by up to a quarter of it as part of the colour circle. 0.4 is usual. 0 turns it off. For
                pictures of uint8.
            rand_augment: RandAugment: so many changes of each training picture, drawn from fourteen (shear, shift,
                rotate, brightness, contrast, colour, sharpness, posterize, solarize, equalize, autocontrast, none). 2
                is usual. 0 turns it off. For pictures of uint8.
            rand_augment_magnitude: How strong the changes of rand_augment are.
            random_erasing: Share of the training pictures in which a rectangle of 2 to 33 % of the area is filled with
                the mean colour. 0.25 is usual. 0 turns it off.
            mixup: Mix each training picture and its label with another's, by a share drawn from Beta(mixup, mixup). 0.2
                is usual; larger mixes more. With cutmix as well, each pair draws which of the two. 0 turns it off.
            cutmix: Put a rectangle of another training picture into each, of a share drawn from Beta(cutmix, cutmix) of
                its area, and mix the labels by the area. 1 is usual. 0 turns it off.
            precision: Arithmetic of the forward and backward pass. bf16 is the best choice on recent GPUs; fp64 is for
                exact comparisons. fp16 is not offered: it would need its loss scaled, and bf16 does not.
            compile: Compile the forward and backward pass with XLA; some time at the start, faster steps afterwards.
            deterministic: Use only operations of the GPU that repeat their bits, so that the same job, and one that was
                killed and continued, ends with exactly the same weights on GPUs of the same model. Convolutions become
                slower, since cuDNN may not try which of its algorithms is the fastest, and an operation without such a
                form ends the run and is named. Without it, runs on GPUs differ in the last digits. On a CPU it has no
                effect: there the bits are the same in any case.
            seed: Seed of the initial weights and of the order of the rows.
            log_every: Steps between two lines of metrics. At these steps the ranks also compare notes: a loss that is
                not finite is acted upon here.
            checkpoint_every: Steps between two checkpoints; 0 makes one at the end of each epoch.
            checkpoint_minutes: Minutes after which another checkpoint is made, besides those of checkpoint_every, at
                the next line of metrics; it is written while the training goes on. 0 makes none.
            keep_checkpoints: Newest checkpoints that are kept; one fewer where there is no room for a further one.
            keep_every: Keep for good the checkpoints of steps that are a multiple of this, too; 0 keeps the newest
                alone.
            verify_checkpoints: Read all bytes of a checkpoint before continuing from it. Without it each tensor is
                checked when it is read, and a damaged one found as well.
            resume_from: Folder of checkpoints of another run to continue from. A run that was interrupted continues
                from its own output "checkpoints" without this. With more epochs than that run had, the further ones are
                trained, at the learning rates of all of them together; where these do not depend on the epochs
                (schedule constant, warmup_fraction 0), the result is that of a run that had so many from the start.
            read: How rows are read. auto: from memory up to 256 MB, at random from the files beyond. memory: all of
                them are held, on the GPU if there is one; encoded pictures as such, on the node. random: from the files
                at random, which a mount of cloud storage is slow at. streaming: whole files one after another, mixed in
                a buffer, in an order of its own that does not depend on the number of GPUs either. Choose it for data
                on a mount that does not fit into memory.
            shuffle_buffer: For streaming: size of the files whose rows are mixed at a time. Each GPU needs half as much
                again of the node's memory, which those of a node share; files are as large as rows_per_shard of the
                preparation says. Data of half its size is shuffled as a whole. An interrupted run is continued only
                with the same.
            loader_workers: Threads of each process that read batches ahead; 0 reads between two steps.
            prefetch: Batches that the reading threads may be ahead.
            init_timeout: Minutes in which all ranks have to have started.
            step_timeout: Minutes after which a rank that waits for the others gives up. One in which nothing moves for
                half of that, 10 seconds at least, no step, batch or file, is named with where it stands, and ends the
                run.
        """

class TrainTfParameterServer(CommandComponent):
    def __call__(
        self,
        *,
        data: Data,
        architecture: Text = "mlp",
        model_code: Data | None = None,
        initial_model: Data | None = None,
        epochs: Whole = 15,
        batch_size: Whole = 64,
        accumulation_steps: Whole = 1,
        optimizer: Literal["sgd", "adam", "adamw"] | Text = "adamw",
        learning_rate: Number = 0.006,
        momentum: Number = 0.9,
        weight_decay: Number | None = None,
        label_smoothing: Number = 0.1,
        clip_norm: Number = 1,
        warmup_fraction: Number = 0.05,
        schedule: Literal["constant", "cosine", "linear"] | Text = "cosine",
        crop_padding: Whole = 0,
        resized_crop: Number = 1,
        horizontal_flip: Number = 0,
        color_jitter: Number = 0,
        rand_augment: Whole = 0,
        rand_augment_magnitude: Whole = 9,
        random_erasing: Number = 0,
        mixup: Number = 0,
        cutmix: Number = 0,
        precision: Literal["fp32", "bf16", "fp64"] | Text = "fp32",
        deterministic: Flag = "false",
        seed: Whole = 0,
        log_every: Whole = 10,
        checkpoint_every: Whole = 0,
        checkpoint_minutes: Number = 10,
        keep_checkpoints: Whole = 2,
        keep_every: Whole = 0,
        verify_checkpoints: Flag = "false",
        resume_from: Data | None = None,
        read: Literal["auto", "memory", "random", "streaming"] | Text = "auto",
        shuffle_buffer: Number = 512,
        loader_workers: Whole = 1,
        prefetch: Whole = 4,
        init_timeout: Number = 10,
    ) -> Step[ModelCheckpointsMetricsOutputs]:
        """Trains a Keras model with TensorFlow's ParameterServerStrategy: the weights lie on servers, and the workers
        compute one batch each without waiting for one another. Choose this one where nodes differ in speed, or where
        the weights are too many for one node. Steps overlap, so two runs do not end with exactly the same weights.
        Worker 0 reads the rows and hands them out. There is no input "compile": XLA reads no weights that lie on
        servers. Nor is there a "step_timeout": a worker that hangs is waited for until the job is cancelled. The model
        is saved in MLflow's format and needs no code of yours to be deployed.

        Args:
            data: A prepared dataset, as "Prepare data" writes it: images or a table, with classes or with a number to
                predict.
            architecture: The network, in Keras: mlp; resnet, a small one for images; resnet50 for images of 32 x 32 and
                more; or FILE.py:FUNCTION in the folder "model_code". Tables take mlp. The function takes (input_shape,
                num_outputs), channels last, and returns a keras.Model.
            model_code: Folder with your model's code, when "architecture" is FILE.py:FUNCTION; otherwise it has no
                effect.
            initial_model: A model that this trainer, or another one of the same framework, has saved, of the same
                architecture: the training begins with its weights, and with its mean and deviation of the rows. With
                other classes, or another target, its head is new. A run that goes on from a checkpoint has its weights
                from there.
            epochs: Passes over the training rows.
            batch_size: Rows in one optimizer step, which one worker makes by itself; the last partial batch of an epoch
                is left out.
            accumulation_steps: Parts in which a worker computes a batch, one after the other, to use less memory.
            optimizer: Optimization method.
            learning_rate: Highest learning rate, reached after the warm-up.
            momentum: Momentum of sgd, and the first beta of adam and adamw.
            weight_decay: Weight decay of matrices and convolutions; biases and normalisation weights are left out.
                Leave it empty for a value that suits the optimizer: 0.3 for adamw, 0.0005 for sgd, 0 for adam.
            label_smoothing: Share of each label that is spread over all classes while training; keeps the model from
                being too sure, and usually better on new data. 0 turns it off; regression has no use for it.
            clip_norm: Largest norm of the gradient over all parameters; 0 turns clipping off.
            warmup_fraction: Part of all steps during which the learning rate rises from 0, as a fraction.
            schedule: What the learning rate does after the warm-up. Cosine and linear fall to 0 at the end.
            crop_padding: Move each training picture by up to so many pixels in both directions; what comes in is of the
                mean colour. 4 is usual for 32 x 32. 0 turns it off.
            resized_crop: Cut a part of at least this share of each training picture's area, with sides of 3:4 to 4:3 of
                the picture's, and bring it to the picture's size. 0.08 to 0.35 is usual for photographs. 1 turns it
                off.
            horizontal_flip: Share of the training pictures that are mirrored, left to right. 0.5 suits what has no left
                and right; digits and letters do. 0 turns it off.
            color_jitter: Change brightness, contrast and saturation of each training picture by up to this share, and
                the hue by up to a quarter of it as part of the colour circle. 0.4 is usual. 0 turns it off. For
                pictures of uint8.
            rand_augment: RandAugment: so many changes of each training picture, drawn from fourteen (shear, shift,
                rotate, brightness, contrast, colour, sharpness, posterize, solarize, equalize, autocontrast, none). 2
                is usual. 0 turns it off. For pictures of uint8.
            rand_augment_magnitude: How strong the changes of rand_augment are.
            random_erasing: Share of the training pictures in which a rectangle of 2 to 33 % of the area is filled with
                the mean colour. 0.25 is usual. 0 turns it off.
            mixup: Mix each training picture and its label with another's, by a share drawn from Beta(mixup, mixup). 0.2
                is usual; larger mixes more. With cutmix as well, each pair draws which of the two. 0 turns it off.
            cutmix: Put a rectangle of another training picture into each, of a share drawn from Beta(cutmix, cutmix) of
                its area, and mix the labels by the area. 1 is usual. 0 turns it off.
            precision: Arithmetic of the forward and backward pass. bf16 is the best choice on recent GPUs; fp64 is for
                exact comparisons. fp16 is not offered: it would need its loss scaled, and bf16 does not.
            deterministic: Use only operations of the GPU that repeat their bits, so that the same job, and one that was
                killed and continued, ends with exactly the same weights on GPUs of the same model. Convolutions become
                slower, since cuDNN may not try which of its algorithms is the fastest, and an operation without such a
                form ends the run and is named. Without it, runs on GPUs differ in the last digits. On a CPU it has no
                effect: there the bits are the same in any case.
            seed: Seed of the initial weights and of the order of the rows.
            log_every: Steps between two lines of metrics. At these steps worker 0 waits for all others: a loss that is
                not finite is acted upon here, a request to stop after any step.
            checkpoint_every: Steps between two checkpoints; 0 makes one at the end of each epoch.
            checkpoint_minutes: Minutes after which another checkpoint is made, besides those of checkpoint_every, at
                the next line of metrics; it is written while the training goes on. 0 makes none.
            keep_checkpoints: Newest checkpoints that are kept; one fewer where there is no room for a further one.
            keep_every: Keep for good the checkpoints of steps that are a multiple of this, too; 0 keeps the newest
                alone.
            verify_checkpoints: Read all bytes of a checkpoint before continuing from it. Without it each tensor is
                checked when it is read, and a damaged one found as well.
            resume_from: Folder of checkpoints of another run to continue from. A run that was interrupted continues
                from its own output "checkpoints" without this. With more epochs than that run had, the further ones are
                trained, at the learning rates of all of them together; where these do not depend on the epochs
                (schedule constant, warmup_fraction 0), the result is that of a run that had so many from the start.
            read: How rows are read. auto: from memory up to 256 MB, at random from the files beyond. memory: all of
                them are held, on the GPU if there is one; encoded pictures as such, on the node. random: from the files
                at random, which a mount of cloud storage is slow at. streaming: whole files one after another, mixed in
                a buffer, in an order of its own that does not depend on the number of GPUs either. Choose it for data
                on a mount that does not fit into memory.
            shuffle_buffer: For streaming: size of the files whose rows are mixed at a time. Each GPU needs half as much
                again of the node's memory, which those of a node share; files are as large as rows_per_shard of the
                preparation says. Data of half its size is shuffled as a whole. An interrupted run is continued only
                with the same.
            loader_workers: Threads of each process that read batches ahead; 0 reads between two steps.
            prefetch: Batches that the reading threads may be ahead.
            init_timeout: Minutes in which all ranks have to have started.
        """

class Evaluate(CommandComponent):
    def __call__(
        self,
        *,
        data: Data,
        model: Data,
        split: Literal["train", "validation", "test"] | Text = "test",
        batch_size: Whole = 256,
        worst_rows: Whole = 24,
        samples: Whole = 4,
        init_timeout: Number = 10,
        step_timeout: Number = 60,
    ) -> Step[ReportOutputs]:
        """Measures a trained model on one split of a prepared dataset. Of a classifier: accuracy, precision, recall and
        F1 of each class, the confusion matrix, ROC curves, calibration. Of a regression: RMSE, mean absolute error and
        R2 in the target's own units, and pictures of predictions and residuals. Of a language model: bits per byte
        beside those of gzip, perplexity, token accuracy, and the loss by position. All ranks predict; no row is counted
        twice, and the result is that of a single process whatever the number of ranks. Gives a page to read, pictures,
        and the numbers as files and in MLflow.

        Args:
            data: A prepared dataset, from Prepare data or Prepare text.
            model: The model of a trainer of this library, trained on the same kind of data.
            split: The part of the data that is measured.
            batch_size: Rows that a rank predicts at a time; fewer where the logits of a language model would fill the
                memory. Changes speed and memory, not the metrics.
            worst_rows: Rows that are shown as they are (picture, text or columns), on the page and in worst_rows.json:
                the surest mistakes, the largest errors, or the hardest texts. With 0 and samples 0 the report holds no
                row of the data.
            samples: Of a language model: beginnings of rows that it continues, up to 64 tokens each, on the page and in
                samples.json.
            init_timeout: Minutes to wait until all ranks have started.
            step_timeout: Minutes that the ranks give each other to finish their part.
        """

class CompareModels(CommandComponent):
    def __call__(
        self,
        *,
        evaluation_1: Data | None = None,
        evaluation_2: Data | None = None,
        evaluation_3: Data | None = None,
        evaluation_4: Data | None = None,
        evaluation_5: Data | None = None,
        evaluation_6: Data | None = None,
        evaluation_7: Data | None = None,
        evaluation_8: Data | None = None,
        names: Text = "-",
        metric: Text = "accuracy",
        goal: Literal["maximize", "minimize"] | Text = "maximize",
    ) -> Step[ReportOutputs]:
        """Compares up to eight evaluations and names the best model by one metric. The page shows every model in a
        table and a picture. All evaluations should be of the same data.

        Args:
            evaluation_1: Report of "Evaluate" for model 1 of the comparison.
            evaluation_2: Report of "Evaluate" for model 2 of the comparison.
            evaluation_3: Report of "Evaluate" for model 3 of the comparison.
            evaluation_4: Report of "Evaluate" for model 4 of the comparison.
            evaluation_5: Report of "Evaluate" for model 5 of the comparison.
            evaluation_6: Report of "Evaluate" for model 6 of the comparison.
            evaluation_7: Report of "Evaluate" for model 7 of the comparison.
            evaluation_8: Report of "Evaluate" for model 8 of the comparison.
            names: Names of the models in the order of their ports, with commas between them; "-" numbers them.
            metric: The number in metrics.json that decides.
            goal: Whether more or less of it is better.
        """

class CheckCluster(CommandComponent):
    def __call__(
        self,
        *,
        transport: Literal["auto", "mpi"] | Text = "auto",
        max_megabytes: Number = 256,
        repeats: Whole = 10,
        fail_on_problem: Flag = "true",
        init_timeout: Number = 5,
        step_timeout: Number = 2,
    ) -> Step[ReportOutputs]:
        """Run this before a long training: every rank reaches every other, how fast all-reduce is from 4 bytes to 256
        MB, whether InfiniBand is there and in use, whether all machines have the same GPUs, drivers and versions, and
        can use them. Gives a table, a picture and a verdict, and names the rank that does not answer. Takes a minute.

        Args:
            transport: What carries the data. auto is NCCL on GPUs and gloo without; mpi measures MPI itself, in a step
                with the mpi distribution.
            max_megabytes: The largest message, in megabytes; messages grow from 4 bytes up to it by a factor of four.
            repeats: How often each size is measured; the median counts.
            fail_on_problem: Whether the step fails when something is wrong, so that the training behind it does not
                start.
            init_timeout: Minutes in which all ranks have to have started; after that those that have not are named.
            step_timeout: Minutes after which a rank that does not answer is given up.
        """

class Components:
    """The library's components by name."""

    prepare_data: PrepareData
    prepare_text: PrepareText
    train_ddp: TrainDdp
    train_torchrun: TrainTorchrun
    train_fsdp: TrainFsdp
    train_deepspeed: TrainDeepspeed
    train_lightning: TrainLightning
    train_transformers: TrainTransformers
    train_horovod: TrainHorovod
    train_horovod_keras: TrainHorovodKeras
    train_tf_multiworker: TrainTfMultiworker
    train_tf_parameter_server: TrainTfParameterServer
    evaluate: Evaluate
    compare_models: CompareModels
    check_cluster: CheckCluster

components: Components
