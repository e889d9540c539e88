import pytest
from PIL import Image, ImageDraw, ImageFont

from doap.images.fonts import font_for


def drawn(text: str) -> bytes:
    image = Image.new("L", (200, 40))
    ImageDraw.Draw(image).text((5, 5), text, fill=255, font=font_for(text, 15))
    return image.tobytes()


@pytest.mark.parametrize("text", ["äöüß", "éñçø", "łšğå", "Жд", "μλ"])
def test_letters_beyond_ascii_are_not_all_one_box(text: str) -> None:
    assert len({drawn(letter) for letter in text}) == len(text)


def test_ascii_needs_no_other_font() -> None:
    font = font_for("left.jpg", 15)
    assert isinstance(font, ImageFont.FreeTypeFont)
    assert font.getname() == ("Aileron", "Regular")
