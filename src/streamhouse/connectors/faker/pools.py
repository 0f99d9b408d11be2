"""Pools of texts, made once in each process by the package Faker, from which rows are sampled."""

from __future__ import annotations

import re
import zlib
from functools import lru_cache
from typing import Any

import pyarrow as pa

POOL, _SAMPLE = 1_000, 20
"""How many texts are made for each kind; it takes about a tenth of a second."""
_METHODS = {
    "name.firstname": "first_name",
    "name.lastname": "last_name",
    "name.prefix": "prefix",
    "name.suffix": "suffix",
    "name.title": "job",
    "name.username": "user_name",
    "name.malefirstname": "first_name_male",
    "name.femalefirstname": "first_name_female",
    "address.city": "city",
    "address.cityname": "city",
    "address.country": "country",
    "address.countrycode": "country_code",
    "address.state": "administrative_unit",
    "address.stateabbr": "state_abbr",
    "address.streetname": "street_name",
    "address.streetaddress": "street_address",
    "address.secondaryaddress": "secondary_address",
    "address.buildingnumber": "building_number",
    "address.zipcode": "postcode",
    "address.postcode": "postcode",
    "address.fulladdress": "address",
    "address.timezone": "timezone",
    "country.name": "country",
    "country.countrycode2": "country_code",
    "company.name": "company",
    "company.suffix": "company_suffix",
    "company.catchphrase": "catch_phrase",
    "company.bs": "bs",
    "company.profession": "job",
    "internet.tld": "tld",
    "internet.domainword": "domain_word",
    "internet.url": "url",
    "internet.image": "image_url",
    "internet.slug": "slug",
    "internet.password": "password",
    "internet.useragent": "chrome",
    "internet.useragentany": "chrome",
    "internet.username": "user_name",
    "phonenumber.phonenumber": "phone_number",
    "phonenumber.cellphone": "phone_number",
    "lorem.word": "word",
    "lorem.sentence": "sentence",
    "lorem.paragraph": "paragraph",
    "job.title": "job",
    "job.position": "job",
    "color.name": "color_name",
    "color.hex": "hex_color",
    "currency.code": "currency_code",
    "currency.name": "currency_name",
    "money.currencycode": "currency_code",
    "code.isbn10": "isbn10",
    "code.isbn13": "isbn13",
    "code.ean8": "ean8",
    "code.ean13": "ean13",
    "finance.iban": "iban",
    "finance.bic": "swift",
    "finance.creditcard": "credit_card_number",
    "business.creditcardnumber": "credit_card_number",
    "business.creditcardtype": "credit_card_provider",
    "file.filename": "file_name",
    "file.extension": "file_extension",
    "file.mimetype": "mime_type",
    "crypto.md5": "md5",
    "crypto.sha1": "sha1",
    "crypto.sha256": "sha256",
}
"""The methods of Faker for the directives of flink-faker, by their keys."""
WORDS = {
    "commerce.department": "Automotive Baby Beauty Books Clothing Computers Electronics Games "
    "Garden Grocery Health Home Industrial Jewelry Kids Movies Music Outdoors Shoes Sports Tools "
    "Toys",
    "commerce.material": "Aluminum Bronze Concrete Copper Cotton Granite Leather Linen Marble "
    "Paper Plastic Rubber Silk Steel Wooden Wool",
    "commerce.color": "black blue brown gold green grey orange pink purple red silver white yellow",
    "commerce.adjective": "Aerodynamic Durable Enormous Ergonomic Fantastic Gorgeous Heavy-Duty "
    "Incredible Lightweight Mediocre Practical Rustic Sleek Small Synergistic",
    "commerce.item": "Bag Bench Bottle Chair Clock Coat Computer Gloves Hat Keyboard Knife Lamp "
    "Pants Plate Shirt Shoes Table Wallet Watch",
    "demographic.sex": "Female Male",
    "weather.description": "Clear Cloudy Drizzle Fog Hail Overcast Rain Snow Sunny Thunderstorm",
    "harrypotter.character": "Albus_Dumbledore Draco_Malfoy Ginny_Weasley Harry_Potter "
    "Hermione_Granger Luna_Lovegood Minerva_McGonagall Neville_Longbottom Ron_Weasley "
    "Rubeus_Hagrid Severus_Snape Sirius_Black",
    "harrypotter.house": "Gryffindor Hufflepuff Ravenclaw Slytherin",
    "harrypotter.spell": "Accio Alohomora Expelliarmus Lumos Nox Obliviate Reparo Riddikulus "
    "Stupefy Wingardium_Leviosa",
    "harrypotter.location": "Azkaban Diagon_Alley Forbidden_Forest Gringotts Hogsmeade Hogwarts "
    "Honeydukes The_Burrow",
}
"""Words of our own, separated by blanks; `_` is a blank within a word."""
_EXCLUDED = re.compile(
    r"^_|^(add_|get_|set_|del_|seed|parse|format|random$|factories|locales|items|provider|enum)"
    r"|date|time|unix|year|month|century|day|age$|birth|expire|profile|agent|firefox|passport|full$"
)
"""Attributes of Faker that are no values, and methods whose texts depend on today's date."""


def known() -> list[str]:
    """The keys of the directives that have a pool."""
    return [*_METHODS, *WORDS]


@lru_cache(maxsize=256)
def pool(key: str, name: str, locale: str, sample: bool = False) -> pa.Array | None:
    """The texts of a directive by its key and its name, with `sample` a few; None without any.

    A directive that flink-faker does not have is a method of Faker: `#{LicensePlate}`,
    `#{automotive.licensePlate}`.
    """
    if key in WORDS:
        return pa.array([word.replace("_", " ") for word in WORDS[key].split()])
    fake = _fake(locale)
    method = _METHODS.get(key)
    for candidate in [method] if method else _candidates(name):
        if hasattr(fake, candidate):
            return _made(fake, candidate, _SAMPLE if sample else POOL)
    return None


def check_locale(locale: str) -> None:
    """Raise `ValueError` for a locale that Faker does not have."""
    try:
        _fake(locale)
    except AttributeError:
        raise ValueError(
            f"'{locale}' is not a locale of Faker; write one such as 'en_US' or 'de_DE'"
        ) from None


@lru_cache(maxsize=8)
def _fake(locale: str) -> Any:
    # Imported here: it takes a tenth of a second.
    from faker import Faker

    return Faker(locale)


def _made(fake: Any, method: str, size: int) -> pa.Array | None:
    # Its own seed: a pool must not depend on which pools were made before it.
    fake.seed_instance(zlib.crc32(method.encode()))
    texts = []
    for _ in range(size):
        try:
            value = getattr(fake, method)()
        except TypeError:
            return None
        if not isinstance(value, str | int | float):
            return None
        texts.append(str(value))
    return pa.array(texts, pa.string())


def _candidates(name: str) -> list[str]:
    """The methods of Faker that a directive may mean."""
    provider, _, method = name.rpartition(".")
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", method).lower()
    names = [snake, f"{provider.lower()}_{snake}"] if provider else [snake]
    return [entry for entry in names if not _EXCLUDED.search(entry)]
