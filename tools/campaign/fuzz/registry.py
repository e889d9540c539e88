"""All formats under attack, by name."""

from campaign.fuzz.features import feature_formats
from campaign.fuzz.formats import Format
from campaign.fuzz.images import image_formats
from campaign.fuzz.models import model_formats
from campaign.fuzz.sets import set_formats

FORMATS: dict[str, Format] = {
    format_.name: format_ for format_ in [*image_formats(), *set_formats(), *model_formats(), *feature_formats()]
}
