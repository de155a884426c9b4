"""How the pictures of a training are changed at random, so that a model sees each in a new form in every epoch."""

from __future__ import annotations

from shared.settings.fields import Idle, input_port, settings_class

_NO_PICTURES = Idle("the rows are no pictures", lambda now: not now.has_pictures)


@settings_class
class AugmentationSettings:
    """Random changes of the training pictures; those of validation and test stay as they are.

    What happens to a picture depends on the seed, the epoch and its row alone, and whom it is mixed with on its place
    in the global batch: any number of GPUs, and a run that goes on, see the same pictures.
    """

    crop_padding: int = input_port(
        "Move each training picture by up to so many pixels in both directions; what comes in is of the mean colour. 4 "
        "is usual for 32 x 32. 0 turns it off.",
        default=0,
        least=0,
        most=1024,
        unit="pixels",
        idle=(_NO_PICTURES,),
    )
    resized_crop: float = input_port(
        "Cut a part of at least this share of each training picture's area, with sides of 3:4 to 4:3 of the picture's, "
        "and bring it to the picture's size. 0.08 to 0.35 is usual for photographs. 1 turns it off.",
        default=1.0,
        least=0.01,
        most=1,
        idle=(_NO_PICTURES,),
    )
    horizontal_flip: float = input_port(
        "Share of the training pictures that are mirrored, left to right. 0.5 suits what has no left and right; digits "
        "and letters do. 0 turns it off.",
        default=0.0,
        least=0,
        most=1,
        idle=(_NO_PICTURES,),
    )
    color_jitter: float = input_port(
        "Change brightness, contrast and saturation of each training picture by up to this share, and the hue by up to "
        "a quarter of it as part of the colour circle. 0.4 is usual. 0 turns it off. For pictures of uint8.",
        default=0.0,
        least=0,
        most=1,
        idle=(_NO_PICTURES,),
    )
    rand_augment: int = input_port(
        "RandAugment: so many changes of each training picture, drawn from fourteen (shear, shift, rotate, brightness, "
        "contrast, colour, sharpness, posterize, solarize, equalize, autocontrast, none). 2 is usual. 0 turns it off. "
        "For pictures of uint8.",
        default=0,
        least=0,
        most=8,
        idle=(_NO_PICTURES,),
    )
    rand_augment_magnitude: int = input_port(
        "How strong the changes of rand_augment are.",
        default=9,
        least=0,
        most=30,
        idle=(
            _NO_PICTURES,
            Idle("rand_augment is 0", lambda now: now.has_pictures and now.values["rand_augment"] == 0),
        ),
    )
    random_erasing: float = input_port(
        "Share of the training pictures in which a rectangle of 2 to 33 % of the area is filled with the mean colour. "
        "0.25 is usual. 0 turns it off.",
        default=0.0,
        least=0,
        most=1,
        idle=(_NO_PICTURES,),
    )
    mixup: float = input_port(
        "Mix each training picture and its label with another's, by a share drawn from Beta(mixup, mixup). 0.2 is "
        "usual; larger mixes more. With cutmix as well, each pair draws which of the two. 0 turns it off.",
        default=0.0,
        least=0,
        most=100,
        idle=(_NO_PICTURES,),
    )
    cutmix: float = input_port(
        "Put a rectangle of another training picture into each, of a share drawn from Beta(cutmix, cutmix) of its "
        "area, and mix the labels by the area. 1 is usual. 0 turns it off.",
        default=0.0,
        least=0,
        most=100,
        idle=(_NO_PICTURES,),
    )

    @property
    def changes_colors(self) -> bool:
        """Whether something is asked for that is defined for pictures of uint8 alone."""
        return self.color_jitter > 0 or self.rand_augment > 0

    @property
    def mixes(self) -> bool:
        """Whether pictures are mixed with others, and labels with theirs."""
        return self.mixup > 0 or self.cutmix > 0

    @property
    def is_off(self) -> bool:
        """Whether the pictures stay as they are."""
        shapes = self.crop_padding > 0 or self.resized_crop < 1 or self.horizontal_flip > 0 or self.random_erasing > 0
        return not (shapes or self.changes_colors or self.mixes)
