"""Words: the meaning of column names in several languages, and building blocks of messages."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from modifind._warned import warn

MAX_SHOWN = 10  # columns that one warning names


def counted(number: int, thing: str, things: str = "") -> str:
    """A number with its noun, singular for one.

    Examples
    --------
    >>> counted(1, "value does", "values do"), counted(3, "row")
    ('1 value does', '3 rows')
    """
    return f"{number} {thing if number == 1 else things or f'{thing}s'}"


def gaps(missing: int, infinite: int) -> str:
    """Number of missing or infinite values, in words.

    Examples
    --------
    >>> gaps(2, 0), gaps(1, 1)
    ('2 missing values', '1 missing value and 1 infinite value')
    """
    counts = (("missing", missing), ("infinite", infinite))
    return " and ".join(counted(number, f"{kind} value") for kind, number in counts if number)


def meant(word: str, known: Iterable[str]) -> str:
    """Question suggesting the most similar known word; empty if none is similar.

    Examples
    --------
    >>> meant("HorTh", ["age", "horTh"])
    "; did you mean 'horTh'?"
    """
    by_lower = {other.lower(): other for other in known}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.7)
    return f"; did you mean {by_lower[close[0]]!r}?" if close else ""


def printable(text: str) -> str:
    r"""Text with line ends, escape sequences and other control characters escaped.

    Examples
    --------
    >>> print(printable("dose\x1b[31m\n"))
    dose\x1b[31m\n
    """
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def named(names: Iterable[Any], between: str = ", ") -> str:
    r"""Unquoted names for use in a sentence, with control characters escaped.

    Examples
    --------
    >>> print(named(["dose\x1b[31m", "age"]))
    dose\x1b[31m, age
    """
    return printable(between.join(map(str, names)))


def respelled(label: Any) -> str:
    r"""A label normalised for invisible differences: case, whitespace, and Unicode letter forms.

    Examples
    --------
    >>> respelled("Usual\xa0 care ") == respelled("usual care"), respelled("Zu\u0308rich") == respelled("Z\xfcrich")
    (True, True)
    """
    text = unicodedata.normalize("NFKC", str(label)).casefold()
    seen = "".join(letter for letter in text if unicodedata.category(letter) != "Cf")
    return " ".join(unicodedata.normalize("NFKC", seen).split())


def listed(names: Iterable[Any], most: int | None = None) -> str:
    r"""Quoted names for use in a message, with control characters escaped.

    Parameters
    ----------
    names : iterable
        The names.
    most : int, optional
        How many are shown.

    Examples
    --------
    >>> print(listed(["dose\x1b[31m", "age"]), listed("abc", most=2))
    'dose\x1b[31m', 'age' 'a', 'b', ...
    """
    quoted = [repr(name) for name in names]
    return ", ".join(quoted[:most]) + ", ..." * (most is not None and len(quoted) > most)


def shortened(names: Sequence[Any], most: int = 6, between: str = ", ") -> str:
    """The first of many names, and the number of the others.

    Examples
    --------
    >>> shortened("abcd", 2)
    'a, b and 2 more'
    """
    more = len(names) - most
    return named(names[:most], between) + (f" and {more} more" if more > 0 else "")


def refuse_any(columns: Sequence[str], sentence: str) -> None:
    """Raise a ValueError with a sentence that names the columns, if there are any.

    Examples
    --------
    >>> refuse_any([], "{}: holds dates")
    >>> refuse_any(["visit"], "{}: holds dates")
    Traceback (most recent call last):
    ...
    ValueError: visit: holds dates
    """
    if columns:
        raise ValueError(sentence.replace("{}", named(columns), 1))


def warn_of_any(
    columns: Sequence[str], one: str, several: str = "", between: str = ", ", most: int = MAX_SHOWN
) -> None:
    """Warn of columns, if there are any, in a sentence that names them in place of {}."""
    if columns:
        sentence = one if len(columns) == 1 else several or one
        warn(sentence.replace("{}", shortened(columns, most, between), 1))


def refuse_other(argument: str, value: Any, choices: Sequence[str]) -> None:
    """Refuse a setting that is not among its choices.

    Examples
    --------
    >>> refuse_other("missing", "all", ("error", "drop"))
    Traceback (most recent call last):
    ...
    ValueError: missing must be one of 'error', 'drop', not 'all'
    """
    if value not in choices:
        raise ValueError(f"{argument} must be one of {listed(choices)}, not {value!r}")


def repeated(names: Iterable[str]) -> list[str]:
    """Names that occur more than once.

    Examples
    --------
    >>> repeated("abcab")
    ['a', 'b']
    """
    return [name for name, count in Counter(names).items() if count > 1]


def check_part(argument: str, part: Any, *methods: str) -> None:
    """Refuse a class passed in place of an object, and an object that lacks a method.

    Examples
    --------
    >>> check_part("sampler", 3, "fit", "conditional")
    Traceback (most recent call last):
    ...
    ValueError: sampler must be a name or have fit and conditional; int has no fit and no conditional
    """
    if isinstance(part, type):
        raise ValueError(f"{argument} must be an object, {part.__name__}(...), not the class")
    if lacks := [method for method in methods if not callable(getattr(part, method, None))]:
        raise ValueError(
            f"{argument} must be a name or have {' and '.join(methods)}; {type(part).__name__} has no "
            f"{' and no '.join(lacks)}"
        )


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


UNITS = _words(  # and what measures much else, too
    """
    day days week weeks month months year years duration stop tenure
    dauer tag tage wochen monate jahre duree jours semaines mois annees duracion dia dias semanas meses anos duracao
    durata giorni settimane mesi anni duur dagen weken maanden jaren kikan nissu dagar manader ar dage maneder
    dni tygodnie miesiace gun sure
    """
)
TIMES = UNITS | _words(
    """
    time times survival surv futime tte ttr ttp ttf ttd lenfol os pfs dfs rfs efs mfs css followup followed fup tstop
    lifetime zeit uberleben ueberleben temps survie delai suivi tiempo supervivencia sobrevida seguimiento tempo
    sobrevivencia seguimento acompanhamento sopravvivenza tijd overleving jikan seizon tid overlevnad overlevelse aika
    czas przezycie cas vremya srok shijian shengcun
    """
)
BARE_FLAGS = _words("event events evt")  # flags beside a time, or an outcome whose name says nothing:
GENERIC = _words("y outcome response value target")
EVENTS = BARE_FLAGS | _words(
    """
    cens cnsr dth
    delta fustat fstat progression progressed died dead death deceased fail failed failure relapse relapsed
    recurrence recurred recur churn churned attrition attrited exited rearrest rearrested recidivism
    ereignis tod gestorben verstorben rezidiv ausfall kundigung kuendigung evenement deces decede mort rechute
    evento muerte muerto fallecido fallecio defuncion recaida exitus obito morte morreu morto falecido recidiva
    decesso deceduto decessi gebeurtenis overleden overlijden overlijdt recidief sterfte
    shibou shibo ibento jishou saihatsu uchikiri handelse avliden haendelse tapahtuma kuolema
    zdarzenie zgon olay olum sobytie smert siwang
    """
)
CENSORED = ("censor", "censur", "censr", "zens", "gecens", "uchikiri", "sansur", "tsenzur")  # begin a word
TIME_ENDINGS = ("time", "zeit", "dauer", "temps", "tiempo", "tempo", "tijd", "duur", "jikan", "kikan")
EVENT_ENDINGS = ("event", "cens", "death", "fustat", "ereignis", "tod")
STATUS = _words("status stato estado estatus statut zustand")
FLAGS = STATUS | _words("flag indicator ind vital yn")
STEM_TOKENS = ("indicator", "status", "event", "cens", "flag", "stat", "evt", "ind")
SHORT_TIMES, SHORT_FLAGS = _words("t z"), _words("d e c delta")
CONNECTING = _words("to until till of in der die das bis zum zur de la le du au al hasta ate")
EARLIER_WORDS = _words(
    "prior previous prev past history hist hx family parent mother father baseline base before"
) | _words("since age inactive served sentence sentenced onset contract ischemic ischaemic study")
SURVIVAL_WORDS = _words("alive living lebt lebend lebendig vivant vivante vivo viva vivos levend seizon zyje censored")
ANSWER_WORDS = _words("yes no y n true false t f ja nein oui non si nao sim nee hai iie observed unobserved lost none")
# Scripts without blanks or capitals: parts of names.
TIME_PARTS = ("時間", "期間", "日数", "生存", "时间", "期间", "время", "срок", "시간", "기간", "생존", "χρόνος", "زمن")
EVENT_PARTS = (
    *("イベント", "死亡", "打ち切り", "打切", "再発", "事件", "删失", "复发", "событие", "смерть", "цензур"),
    *("사건", "사망", "중도절단", "θάνατος", "حدث", "وفاة"),
)
IDS = _words("id ids idnr idno uid guid uuid seqn identifier ident identificador")
PEOPLE = _words(
    """
    pid ptid patid patnr patno subjid usubjid uniqueid caseid recordid mrn
    patient subject subj person participant respondent individual hhid
    proband teilnehmer versuchsperson vpn persnr pnr persona sujeto paciente participante individuo sujet personne
    paziente soggetto persoon deelnemer pacient pasient potilas pacjent
    """
)
NUMBERS = _words("nr no num number nummer numero code codes key kode codigo index")
PLACES = _words(  # ids of what is no person, and of which rows may be independent given the arms
    """
    site center centre clinic hospital school class state country region county district village city town ward
    zip plz postcode postal tract block store arm treatment drug product type category group visit race language year
    icd atc naics sic occ occupation industry
    """
)
# Words of a measurement before the treatment, and of one after it.
EARLY_WORDS = _words("baseline base bl pre pretest before initial start screening 0")
LATE_WORDS = _words(
    """
    post posttest after final end followup fu endpoint last outcome visit
    week weeks wk w month months mo m day days d year years y
    """
)
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
WORD_OR_NUMBER = re.compile(rf"{WORD.pattern}|\d+")
IDENTIFIER = re.compile(r"(?:^|[^A-Za-z])(?:id|ids|seqn|uuid|identifier)(?:[^A-Za-z]|$)|[a-z](?:ID|Id)$", re.ASCII)


def name_words(name: str) -> list[str]:
    """Words of a name in lower case, without accents.

    Examples
    --------
    >>> name_words("OSEvent_2"), name_words("Überleben (Tage)")
    (['os', 'event'], ['uberleben', 'tage'])
    """
    plain = unicodedata.normalize("NFKD", name.replace("ß", "ss"))
    return _lower_words("".join(c for c in plain if not unicodedata.combining(c)))


def _lower_words(name: str, pattern: re.Pattern[str] = WORD) -> list[str]:
    return [word.lower() for word in pattern.findall(name)]


def is_identifier_name(name: str) -> bool:
    """Whether a column name denotes an identifier.

    Examples
    --------
    >>> [is_identifier_name(name) for name in ("id", "patient_id", "PatientID", "SEQN", "paid", "acid")]
    [True, True, True, True, False, False]
    """
    return bool(IDENTIFIER.search(name) or IDENTIFIER.search(name.lower()))


def is_place_name(name: str) -> bool:
    """Whether a column name denotes places, such as sites, rather than persons."""
    return bool(PLACES & set(_lower_words(name)))


def is_person_name(name: str) -> bool:
    """Whether a column name denotes persons, or other units with few rows each.

    Examples
    --------
    >>> [is_person_name(name) for name in ("id", "patient_id", "PatientID", "USUBJID", "site_id", "paid", "patients")]
    [True, True, True, True, False, False, False]
    """
    words = _lower_words(name)
    if not words or is_place_name(name):
        return False
    people = PEOPLE & set(words)
    return words[-1] in IDS or (bool(people) and set(words) <= PEOPLE | IDS | NUMBERS)


def is_person_identifier_name(name: str) -> bool:
    """Whether a column name denotes identifiers of persons.

    Examples
    --------
    >>> names = ("patient_id", "SubjectID", "id", "patient", "site_id")
    >>> [is_person_identifier_name(name) for name in names]
    [True, True, False, False, False]
    """
    words = _lower_words(name)
    return is_person_name(name) and words[-1] in IDS and bool(PEOPLE & set(words))


def is_baseline_name(name: str, outcome: str) -> bool:
    """Whether a name is that of the outcome plus a word for an early measurement.

    Examples
    --------
    >>> [is_baseline_name(name, "sbp_week12") for name in ("sbp_0", "baselineSBP", "sbp", "dbp_0", "sbp_week4")]
    [True, True, False, False, False]
    """
    words = _lower_words(name, WORD_OR_NUMBER)
    stem = [word for word in words if word not in EARLY_WORDS]
    return 0 < len(stem) < len(words) and stem == _without_time(_lower_words(outcome, WORD_OR_NUMBER))


def _without_time(words: list[str]) -> list[str]:
    """Words of an outcome's name other than those for its time of measurement."""
    kept = [word for word in words if word not in LATE_WORDS]
    while len(kept) > 1 and kept[-1].isdigit():
        kept.pop()
    return kept


def is_time_name(name: str) -> bool:
    """Whether a column name denotes times.

    Examples
    --------
    >>> [is_time_name(name) for name in ("rfstime", "dayslink", "Überlebenszeit", "生存時間", "age")]
    [True, True, True, True, False]
    """
    words = name_words(name)
    return any(map(is_time_word, words)) or any(part in name for part in TIME_PARTS)


def is_event_name(name: str) -> bool:
    """Whether a column name denotes an event indicator.

    Examples
    --------
    >>> [is_event_name(name) for name in ("status", "OSEvent", "died", "décès", "marital_status", "prior_event", "age")]
    [True, True, True, True, False, False, False]
    """
    words = name_words(name)
    if EARLIER_WORDS & set(words):
        return False
    if any(is_event_word(word) for word in words) or any(part in name for part in EVENT_PARTS):
        return True
    others = [word for word in words if word not in STATUS]
    return len(others) < len(words) and all(word in TIMES or word == "vital" for word in others)


def is_plain_flag(name: str) -> bool:
    """Whether a column name denotes an event indicator and nothing else."""
    words = name_words(name)
    return is_event_name(name) and all(is_event_word(w) or is_time_word(w) or w in FLAGS for w in words)


def means_censored(words: set[str]) -> bool:
    """Whether a word means that something was censored."""
    return "cens" in words or any(word.startswith(CENSORED) for word in words)


def is_time_word(word: str) -> bool:
    """Whether a word means a time, or starts or ends like such words."""
    return word in TIMES or word.endswith(TIME_ENDINGS) or word.startswith("days")


def is_event_word(word: str) -> bool:
    """Whether a word means an event, or starts or ends like such words."""
    stems = {word, *(word.removesuffix(token) for token in STEM_TOKENS)}
    return bool(stems & EVENTS) or word.endswith(EVENT_ENDINGS) or word.startswith(CENSORED)


def share_stem(flag: str, time: str) -> bool:
    """Whether a flag and a time are named after the same event: failind and failtime, os and os_time."""
    whole, letters = "".join(name_words(time)), "".join(name_words(flag))
    stem = _without_token(letters)
    rest = whole.removeprefix(stem) if whole.startswith(stem) else whole.removesuffix(stem)
    is_stem = stem != letters or stem in TIMES or rest.endswith("to")
    return is_stem and len(stem) > 1 and rest != whole and rest.removesuffix("to") in TIMES


def _without_token(letters: str) -> str:
    """The stem of an indicator's name, without status, ind, cens, ..."""
    shorter = (rest for token in STEM_TOKENS for rest in (letters.removeprefix(token), letters.removesuffix(token)))
    return next((rest for rest in shorter if rest and rest != letters), letters)
