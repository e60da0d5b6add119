"""Words that the bookstore is made of, commonest first."""

from __future__ import annotations

CATEGORIES = (
    "Fiction",
    "Children's Books",
    "Mystery & Thriller",
    "Romance",
    "Science Fiction & Fantasy",
    "Biography & Memoir",
    "History",
    "Self-Help",
    "Cooking",
    "Business & Economics",
    "Religion & Spirituality",
    "Health & Fitness",
    "Computers & Technology",
    "Travel",
    "Politics & Social Sciences",
    "Arts & Photography",
    "Science & Mathematics",
    "Comics & Graphic Novels",
    "Education & Teaching",
    "Crafts & Hobbies",
    "Poetry",
    "Sports & Outdoors",
    "Law",
    "Medicine",
    "Music",
)

_HOUSE_STEMS = tuple(
    """Harrow & Vale|Northgate|Bluebell Lane|Crown & Anchor|Stonebridge|Larkspur|Old Mill|Meridian|Copperfield|
Silver Birch|Kingfisher|Ashdown|Wren & Thistle|Lighthouse|Marlowe|Foxglove|Highbury|Redwood|Saltmarsh|Quayside|
Elm Street|Hawthorn|Greyfriars|Bramble|Union Square|Pembroke|Juniper|Riverside|Fairweather|Cobalt|Thornfield|
Rosemont|Beacon Hill|Windermere|Oak & Ivy|Falcon|Sunstone|Whitby|Clearwater|Ravenscourt""".replace("\n", "").split("|")
)
_HOUSE_FORMS = (
    "Publishing House",
    "Press",
    "Books",
    "& Company",
    "Editions",
    "Publishing Group",
    "University Press",
    "Media",
    "& Sons",
    "International",
)

FEMALE_NAMES = tuple(
    """\
Mary Patricia Jennifer Linda Elizabeth Barbara Susan Jessica Sarah Karen Lisa Nancy Betty Sandra Margaret
Ashley Kimberly Emily Donna Michelle Carol Amanda Melissa Deborah Stephanie Rebecca Sharon Laura Cynthia
Dorothy Amy Kathleen Angela Shirley Emma Brenda Pamela Nicole Anna Samantha Katherine Christine Debra Rachel
Carolyn Janet Maria Olivia Heather Helen Catherine Diane Julie Victoria Joyce Lauren Kelly Christina Ruth
Joan Virginia Judith Evelyn Hannah Andrea Megan Cheryl Jacqueline Madison Teresa Abigail Sophia Martha Sara
Gloria Janice Kathryn Ann Isabella Judy Charlotte Julia Grace Amber Alice Jean Denise Frances Danielle
Marilyn Natalie Beverly Diana Brittany Theresa Kayla Alexis Doris Lori Tiffany
""".split()
)
MALE_NAMES = tuple(
    """\
James Robert John Michael David William Richard Joseph Thomas Christopher Charles Daniel Matthew Anthony
Mark Donald Steven Andrew Paul Joshua Kenneth Kevin Brian Timothy Ronald George Jason Edward Jeffrey Ryan
Jacob Nicholas Gary Eric Jonathan Stephen Larry Justin Scott Brandon Benjamin Samuel Gregory Alexander
Patrick Frank Raymond Jack Dennis Jerry Tyler Aaron Jose Adam Nathan Henry Zachary Douglas Peter Kyle Noah
Ethan Jeremy Christian Walter Keith Austin Roger Terry Sean Gerald Carl Dylan Harold Jordan Jesse Bryan
Lawrence Arthur Gabriel Bruce Logan Billy Joe Alan Juan Elijah Willie Albert Wayne Randy Mason Vincent Liam
Roy Bobby Caleb Bradley Russell Harrison
""".split()
)
LAST_NAMES = tuple(
    """\
Smith Johnson Williams Brown Jones Garcia Miller Davis Rodriguez Martinez Hernandez Lopez Gonzalez Wilson
Anderson Thomas Taylor Moore Jackson Martin Lee Perez Thompson White Harris Sanchez Clark Ramirez Lewis
Robinson Walker Young Allen King Wright Scott Torres Nguyen Hill Flores Green Adams Nelson Baker Hall Rivera
Campbell Mitchell Carter Roberts Gomez Phillips Evans Turner Diaz Parker Cruz Edwards Collins Reyes Stewart
Morris Morales Murphy Cook Rogers Gutierrez Ortiz Morgan Cooper Peterson Bailey Reed Kelly Howard Ramos Kim
Cox Ward Richardson Watson Brooks Chavez Wood James Bennett Gray Mendoza Ruiz Hughes Price Alvarez Castillo
Sanders Patel Myers Long Ross Foster Jimenez Powell Jenkins Perry Russell Sullivan Bell Coleman Butler
Henderson Barnes Gonzales Fisher Vasquez Simmons Romero Jordan Patterson Alexander Hamilton Graham Reynolds
Griffin Wallace Moreno West Cole Hayes Bryant Herrera Gibson Ellis Tran Medina Aguilar Stevens Murray Ford
Castro Marshall Owens Harrison Fernandez McDonald Woods Washington Kennedy Wells Vargas Henry Chen Freeman
Webb Tucker Guzman Burns Crawford Olson Simpson Porter Hunter Gordon Mendez Silva Shaw Snyder Mason Dixon
Munoz Hunt Hicks Holmes Palmer Wagner Black Robertson Boyd Rose Stone Salazar Fox Warren Mills Meyer Rice
Schmidt Garza Daniels Ferguson Nichols Stephens Soto Weaver Ryan Gardner Payne Grant Dunn Kelley Spencer
Hawkins Arnold Pierce Hansen Peters Santos Hart Bradley Knight Elliott Cunningham Duncan Armstrong Hudson
Carroll Lane Riley Andrews Alvarado Ray Delgado Berry Perkins Hoffman Johnston Matthews Pena Richards
Contreras Willis Carpenter Lawrence Sandoval
""".split()
)
STATES = tuple(
    """\
CA TX FL NY PA IL OH GA NC MI NJ VA WA AZ TN MA IN MO MD WI CO MN SC AL LA KY OR OK CT UT IA NV AR KS MS NM
NE ID WV HI NH ME RI MT DE SD ND AK VT WY
""".split()
)
MAIL_DOMAINS = ("example.com", "mail.example.org", "post.example.net", "example.edu", "letters.example.com")


def publishers(count: int) -> tuple[str, ...]:
    """Return that many different publishers' names."""
    if count > len(_HOUSE_STEMS) * len(_HOUSE_FORMS):
        raise ValueError(f"there are not {count} names")
    stems = len(_HOUSE_STEMS)
    return tuple(
        f"{_HOUSE_STEMS[n % stems]} {_HOUSE_FORMS[(n + n // stems) % len(_HOUSE_FORMS)]}" for n in range(count)
    )
