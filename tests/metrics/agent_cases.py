"""Cases for the metrics of agents, written by hand: a conversation, a careful judge's verdicts, the value, and why."""

from __future__ import annotations

from typing import Any, NamedTuple

from spanscore import AIMessage, HumanMessage, MultiTurnSample, SingleTurnSample, ToolCall, ToolDefinition, ToolMessage
from spanscore.core.sample import Message, Sample

Call = tuple[str, dict[str, Any]]


class Case(NamedTuple):
    """A sample with its expected score.

    Attributes:
        why: reason of the value.
        sample: the sample.
        rows: number of each asked call, or text of each part → the judge's verdict; (failed, verdict) for ``error_recovery``.
            Empty: the judge is not asked, or finds no part.
        value: expected value; None: undefined.
    """

    why: str
    sample: Sample
    rows: dict[Any, Any]
    value: float | None


def user(text: str) -> HumanMessage:
    """Return a message of the user."""
    return HumanMessage(content=text)


def agent(text: str = "", *calls: Call) -> AIMessage:
    """Return a message of the agent, with its calls."""
    made = [ToolCall(name=name, args=args) for name, args in calls]
    return AIMessage(content=text, tool_calls=made or None)


def result(text: str) -> ToolMessage:
    """Return a tool's result."""
    return ToolMessage(content=text)


def talk(*messages: Message, tools: list[ToolDefinition] | None = None) -> MultiTurnSample:
    """Return a conversation."""
    return MultiTurnSample(user_input=list(messages), tools=tools)


def turn(question: str, answer: str) -> SingleTurnSample:
    """Return a question with its answer."""
    return SingleTurnSample(user_input=question, response=answer)


def offered(name: str, description: str, **parameters: Any) -> ToolDefinition:
    """Return a tool whose arguments are all required; a parameter is a type's name, or a schema."""
    properties = {key: {"type": kind} if isinstance(kind, str) else kind for key, kind in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    return ToolDefinition(name=name, description=description, parameters=schema)


WEATHER = offered("get_weather", "Tell the weather of a city, such as rain, on a day.", city="string", day="string")
CONVERT = offered(
    "convert_currency", "Convert an amount of money.", amount="number", to={"enum": ["USD", "EUR", "GBP"]}
)
SEARCH = offered("web_search", "Search the web for news and facts.", query="string")
ORDER = offered("find_order", "Look up the state of an order by its number.", order="string")
REFUND = offered("refund_order", "Pay back the price of an order.", order="string", amount="number")
MAIL = offered("send_mail", "Send a mail to somebody.", to="string", text="string")
MEETING = offered("create_meeting", "Create a meeting in the calendar.", title="string", hour="integer")
TOOLS = [WEATHER, CONVERT, SEARCH, ORDER, REFUND, MAIL, MEETING]
ASK_RAIN, ASK_ORDER = user("Will it rain in Oslo on Friday?"), user("Where is my order A-7?")
RAIN = ("get_weather", {"city": "Oslo", "day": "Friday"})
STATE = ("find_order", {"order": "A-7"})

SELECTION = [
    Case(
        "the tool for the weather",
        talk(ASK_RAIN, agent("", RAIN), result("Dry."), agent("No."), tools=TOOLS),
        {1: 1},
        1,
    ),
    Case(
        "a search of the web, although a tool for the weather is on offer",
        talk(ASK_RAIN, agent("", ("web_search", {"query": "Oslo Friday"})), result("…"), agent("No."), tools=TOOLS),
        {1: 0},
        0,
    ),
    Case(
        "the search was the best tool on offer",
        talk(
            ASK_RAIN,
            agent("", ("web_search", {"query": "rain Oslo"})),
            result("Dry"),
            agent("No."),
            tools=[SEARCH, MAIL],
        ),
        {1: 1},
        1,
    ),
    Case(
        "a tool that nobody offered",
        talk(ASK_RAIN, agent("", ("weather_api", {"q": "Oslo"})), result("no such tool"), agent("?"), tools=TOOLS),
        {1: 0},
        0,
    ),
    Case(
        "two tools, both needed",
        talk(
            user("Look up my order A-7 and refund it."),
            agent("", STATE),
            result("A-7: 30 euros"),
            agent("", ("refund_order", {"order": "A-7", "amount": 30})),
            result("done"),
            agent("You get 30 euros."),
            tools=TOOLS,
        ),
        {1: 1, 2: 1},
        1,
    ),
    Case(
        "a refund, although only the state was asked for",
        talk(
            ASK_ORDER,
            agent("", STATE, ("refund_order", {"order": "A-7", "amount": 30})),
            result("on its way"),
            result("paid back"),
            agent("It is on its way."),
            tools=TOOLS,
        ),
        {1: 1, 2: 0},
        0.5,
    ),
    Case(
        "right tool, wrong argument: the choice alone counts",
        talk(ASK_RAIN, agent("", ("get_weather", {"city": "Bergen", "day": "Friday"})), result("Rain"), tools=TOOLS),
        {1: 1},
        1,
    ),
    Case(
        "the right tool three times: repetition does not count here",
        talk(ASK_RAIN, *[agent("", RAIN), result("Dry.")] * 3, agent("No."), tools=TOOLS),
        {1: 1, 2: 1, 3: 1},
        1,
    ),
    Case(
        "without definitions the conversation decides: a mail tells no weather",
        talk(ASK_RAIN, agent("", ("send_mail", {"to": "x", "text": "rain?"})), result("sent"), agent("I asked.")),
        {1: 0},
        0,
    ),
    Case(
        "one of four calls is wrong",
        talk(
            user("Convert 10 EUR and 20 EUR to USD, and is it raining in Oslo on Friday? Also send a mail to Ann."),
            agent(
                "", ("convert_currency", {"amount": 10, "to": "USD"}), ("convert_currency", {"amount": 20, "to": "USD"})
            ),
            result("11"),
            result("22"),
            agent("", ("web_search", {"query": "forecast"}), ("send_mail", {"to": "Ann", "text": "hello"})),
            result("…"),
            result("sent"),
            agent("Done."),
            tools=TOOLS,
        ),
        {1: 1, 2: 1, 3: 0, 4: 1},
        0.75,
    ),
    Case(
        "a German request, the right tool",
        talk(user("Regnet es am Freitag in Oslo?"), agent("", RAIN), result("trocken"), agent("Nein."), tools=TOOLS),
        {1: 1},
        1,
    ),
    Case("no call", talk(ASK_RAIN, agent("I do not know."), tools=TOOLS), {}, None),
]

ARGUMENTS = [
    Case("both values are the user's", talk(ASK_RAIN, agent("", RAIN), result("Dry."), tools=TOOLS), {1: 1}, 1),
    Case(
        "a city that nobody named",
        talk(ASK_RAIN, agent("", ("get_weather", {"city": "Madrid", "day": "Friday"})), result("Sun"), tools=TOOLS),
        {1: 0},
        0,
    ),
    Case(
        "a required argument is missing: the schema refuses it, nobody is asked",
        talk(ASK_RAIN, agent("", ("get_weather", {"city": "Oslo"})), result("error"), tools=TOOLS),
        {},
        0,
    ),
    Case(
        "a text in place of a number",
        talk(
            user("Convert 10 euros to dollars."),
            agent("", ("convert_currency", {"amount": "ten", "to": "USD"})),
            result("error"),
            tools=TOOLS,
        ),
        {},
        0,
    ),
    Case(
        "a word that is not in the enumeration",
        talk(
            user("Convert 10 euros to yen."),
            agent("", ("convert_currency", {"amount": 10, "to": "JPY"})),
            result("error"),
            tools=TOOLS,
        ),
        {},
        0,
    ),
    Case(
        "an argument that the tool does not have",
        talk(ASK_ORDER, agent("", ("find_order", {"order": "A-7", "fast": True})), result("error"), tools=TOOLS),
        {},
        0,
    ),
    Case(
        "the amount comes from an earlier result",
        talk(
            user("Refund my order A-7."),
            agent("", STATE),
            result("A-7: 30 euros"),
            agent("", ("refund_order", {"order": "A-7", "amount": 30})),
            result("done"),
            tools=TOOLS,
        ),
        {1: 1, 2: 1},
        1,
    ),
    Case(
        "the amount contradicts an earlier result",
        talk(
            user("Refund my order A-7."),
            agent("", STATE),
            result("A-7: 30 euros"),
            agent("", ("refund_order", {"order": "A-7", "amount": 300})),
            result("done"),
            tools=TOOLS,
        ),
        {1: 1, 2: 0},
        0.5,
    ),
    Case(
        "one call is invalid, one invented, one right",
        talk(
            ASK_RAIN,
            agent(
                "", ("get_weather", {"city": 5, "day": "Friday"}), ("get_weather", {"city": "Rome", "day": "May"}), RAIN
            ),
            result("error"),
            result("sun"),
            result("dry"),
            tools=TOOLS,
        ),
        {2: 0, 3: 1},
        1 / 3,
    ),
    Case(
        "without a definition the judge alone decides",
        talk(ASK_RAIN, agent("", RAIN), result("Dry.")),
        {1: 1},
        1,
    ),
    Case(
        "a schema that is none is not checked",
        talk(
            ASK_RAIN,
            agent("", RAIN),
            result("Dry."),
            tools=[ToolDefinition(name="get_weather", parameters={"type": "no type"})],
        ),
        {1: 1},
        1,
    ),
    Case("no call", talk(ASK_RAIN, agent("I do not know."), tools=TOOLS), {}, None),
]

EFFICIENCY = [
    Case("one call, which was needed", talk(ASK_RAIN, agent("", RAIN), result("Dry."), agent("No.")), {1: 1}, 1),
    Case(
        "the same call three times: two repeats, nobody is asked about them",
        talk(ASK_RAIN, *[agent("", RAIN), result("Dry.")] * 3, agent("No.")),
        {1: 1},
        1 / 3,
    ),
    Case(
        "keys in another order are the same arguments",
        talk(
            ASK_RAIN,
            agent("", RAIN),
            result("Dry."),
            agent("", ("get_weather", {"day": "Friday", "city": "Oslo"})),
            result("Dry."),
        ),
        {1: 1},
        0.5,
    ),
    Case(
        "a circle of two tools, twice around",
        talk(
            user("Ask sales about my offer."),
            *[agent("", ("to_sales", {})), result("ok"), agent("", ("to_support", {})), result("ok")] * 2,
            agent("Please wait."),
        ),
        {1: 1, 2: 0},
        0.25,
    ),
    Case(
        "another attempt after an error, with another result, is needed",
        talk(ASK_RAIN, agent("", RAIN), result("timeout"), agent("", RAIN), result("Dry."), agent("No.")),
        {1: 1, 2: 1},
        1,
    ),
    Case(
        "the same question in a later turn is no repeat",
        talk(
            *(ASK_RAIN, agent("", RAIN), result("Dry."), agent("No.")),
            *(user("And now? Look again."), agent("", RAIN), result("Dry."), agent("Still no.")),
        ),
        {1: 1, 2: 1},
        1,
    ),
    Case(
        "the same search in other words",
        talk(
            user("When did the bridge open?"),
            agent("", ("web_search", {"query": "bridge opening date"})),
            result("1931"),
            agent("", ("web_search", {"query": "date of the opening of the bridge"})),
            result("It opened in 1931."),
            agent("In 1931."),
        ),
        {1: 1, 2: 0},
        0.5,
    ),
    Case(
        "a mail that nobody asked for",
        talk(ASK_RAIN, agent("", RAIN, ("send_mail", {"to": "Ann"})), result("Dry."), result("sent"), agent("No.")),
        {1: 1, 2: 0},
        0.5,
    ),
    Case(
        "four different searches, all needed",
        talk(
            user("Capitals of France, Spain, Italy and Greece?"),
            agent("", *[("web_search", {"query": land}) for land in ("France", "Spain", "Italy", "Greece")]),
            *[result(city) for city in ("Paris", "Madrid", "Rome", "Athens")],
            agent("Paris, Madrid, Rome, Athens."),
        ),
        {1: 1, 2: 1, 3: 1, 4: 1},
        1,
    ),
    Case(
        "1 and True are not the same argument",
        talk(
            user("Set it."), agent("", ("set", {"on": 1})), result("ok"), agent("", ("set", {"on": True})), result("ok")
        ),
        {1: 1, 2: 1},
        1,
    ),
    Case(
        "unknown results count as the same",
        talk(ASK_RAIN, agent("", RAIN), agent("", RAIN), agent("No.")),
        {1: 1},
        0.5,
    ),
    Case("no call", talk(ASK_RAIN, agent("No.")), {}, None),
]

RECOVERY = [
    Case("no result looks like an error: nobody is asked", talk(ASK_RAIN, agent("", RAIN), result("Dry.")), {}, None),
    Case(
        "the error is told to the user",
        talk(ASK_RAIN, agent("", RAIN), result("Error: unknown city"), agent("Sorry, I could not find that city.")),
        {1: (1, 1)},
        1,
    ),
    Case(
        "the error is ignored",
        talk(
            user("Cancel B-17."),
            agent("", ("cancel", {"id": "B-17"})),
            result("Error: no booking B-17"),
            agent("B-17 is cancelled."),
        ),
        {1: (1, 0)},
        0,
    ),
    Case(
        "another attempt with other arguments",
        talk(
            ASK_RAIN,
            agent("", ("get_weather", {"city": "Osslo"})),
            result("Error: unknown city"),
            agent("", RAIN),
            result("Dry."),
            agent("No."),
        ),
        {1: (1, 1)},
        1,
    ),
    Case(
        "another tool",
        talk(
            ASK_RAIN,
            agent("", RAIN),
            result("503 Service Unavailable"),
            agent("", ("web_search", {"query": "rain Oslo"})),
            result("Dry."),
            agent("No."),
        ),
        {1: (1, 1)},
        1,
    ),
    Case(
        "the same call again without a change, three times, then silence about it",
        talk(
            user("Delete the file x."),
            *[agent("", ("delete", {"file": "x"})), result("Permission denied")] * 3,
            agent("All is well."),
        ),
        {1: (1, 0), 2: (1, 0), 3: (1, 0)},
        0,
    ),
    Case(
        "the user is asked",
        talk(
            ASK_ORDER,
            agent("", STATE),
            result('{"error": "several customers"}'),
            agent("Which customer number do you have?"),
        ),
        {1: (1, 1)},
        1,
    ),
    Case(
        "a document about errors is no failure",
        talk(
            user("What does error 404 mean?"),
            agent("", ("web_search", {"query": "404"})),
            result("The status 404 means that a page does not exist."),
            agent("The page does not exist."),
        ),
        {1: (0, 1)},
        None,
    ),
    Case(
        "one of two failures is ignored",
        talk(
            user("Book the flight and the hotel."),
            agent("", ("flight", {}), ("hotel", {})),
            result("Error: sold out"),
            result("Error: timeout"),
            agent("", ("hotel", {"again": True})),
            result("booked"),
            agent("Both are booked."),
        ),
        {1: (1, 0), 2: (1, 1)},
        0.5,
    ),
    Case(
        "a German error, told in German",
        talk(
            user("Wo ist A-7?"),
            agent("", STATE),
            result("Fehler: Auftrag nicht gefunden"),
            agent("Den Auftrag A-7 gibt es leider nicht."),
        ),
        {1: (1, 1)},
        1,
    ),
    Case(
        "the result is unknown, so no failure is known",
        talk(ASK_RAIN, agent("", RAIN), agent("No.")),
        {},
        None,
    ),
    Case("no call", talk(ASK_RAIN, agent("No.")), {}, None),
]

FIND, PRICE, BOOK = ("find_flight", {"to": "Rome"}), ("get_price", {"flight": "F1"}), ("book_flight", {"flight": "F1"})
WISH = user("Book me a flight to Rome.")
STEPS = "Plan:\n1. Find a flight.\n2. Get the price.\n3. Book the flight."
PLAN = [
    Case(
        "all three steps, in order",
        talk(WISH, agent(STEPS, FIND), result("F1"), agent("", PRICE), result("90"), agent("", BOOK), result("ok")),
        {"find a flight": 1, "get the price": 1, "book the flight": 1},
        1,
    ),
    Case(
        "the price was left out",
        talk(WISH, agent(STEPS, FIND), result("F1"), agent("", BOOK), result("ok"), agent("Booked.")),
        {"find a flight": 1, "get the price": 0, "book the flight": 1},
        2 / 3,
    ),
    Case(
        "booked before the price was known",
        talk(WISH, agent(STEPS, FIND), result("F1"), agent("", BOOK), result("ok"), agent("", PRICE), result("90")),
        {"find a flight": 1, "get the price": 1, "book the flight": 0},
        2 / 3,
    ),
    Case(
        "the plan alone, and nothing done",
        talk(WISH, agent(STEPS), agent("It is booked.")),
        {"a": 0, "b": 0, "c": 0},
        0,
    ),
    Case("no plan", talk(WISH, agent("", FIND), result("F1"), agent("F1 flies to Rome.")), {}, None),
    Case("one announced action is no plan", talk(WISH, agent("I look for a flight.", FIND), result("F1")), {}, None),
    Case(
        "a list of tasks, kept by a tool",
        talk(
            WISH,
            agent("", ("write_todos", {"todos": ["find a flight", "book the flight"]})),
            result("ok"),
            agent("", FIND),
            result("F1"),
            agent("", BOOK),
            result("ok"),
        ),
        {"find a flight": 1, "book the flight": 1},
        1,
    ),
    Case(
        "steps that the user prescribed",
        talk(
            user("First find a flight to Rome, then tell me the price, and only then book."),
            *(agent("", FIND), result("F1"), agent("", BOOK), result("ok"), agent("Booked.")),
        ),
        {"find a flight": 1, "tell the price": 0, "book": 0},
        1 / 3,
    ),
    Case(
        "openly revised: the new plan counts",
        talk(
            WISH,
            agent(STEPS, FIND),
            result("no flight"),
            agent(
                "There is no flight. New plan:\n1. Find a train.\n2. Book the train.", ("find_train", {"to": "Rome"})
            ),
            result("T1"),
            agent("", ("book_train", {"train": "T1"})),
            result("ok"),
        ),
        {"find a train": 1, "book the train": 1},
        1,
    ),
    Case(
        "the agent waits for the user: the booking was still to come",
        talk(
            WISH, agent(STEPS, FIND), result("F1"), agent("", PRICE), result("90"), agent("Shall I book for 90 euros?")
        ),
        {"find a flight": 1, "get the price": 1},
        1,
    ),
    Case(
        "a step that failed was taken all the same",
        talk(WISH, agent(STEPS, FIND), result("F1"), agent("", PRICE), result("error"), agent("", BOOK), result("ok")),
        {"find a flight": 1, "get the price": 1, "book the flight": 1},
        1,
    ),
    Case("the agent has not spoken: nobody is asked", talk(WISH), {}, None),
]

COMPLETENESS = [
    Case(
        "both parts",
        turn("When did it open and how long is it?", "It opened in 1931 and is 412 metres long."),
        {"when it opened": 1, "how long it is": 1},
        1,
    ),
    Case(
        "the length is missing",
        turn("When did it open and how long is it?", "It opened in 1931."),
        {"when it opened": 1, "how long it is": 0},
        0.5,
    ),
    Case("one part, answered", turn("Who built it?", "Ann Lee built it."), {"who built it": 1}, 1),
    Case("one part, declined", turn("Who built it?", "I cannot say."), {"who built it": 0}, 0),
    Case("a wrong answer is an answer", turn("Who built it?", "Santa Claus built it."), {"who built it": 1}, 1),
    Case("an empty answer", turn("Who built it and when?", ""), {"who built it": 0, "when": 0}, 0),
    Case(
        "one of three in a list",
        turn("Give me the height, the weight and the price.", "The price is 9 euros."),
        {"height": 0, "weight": 0, "price": 1},
        1 / 3,
    ),
    Case("thanks alone", turn("Thank you!", "You are welcome."), {}, None),
    Case("an empty question: nobody is asked", turn("  ", "Hello."), {}, None),
    Case(
        "a conversation in which both requests were met",
        talk(user("Is it open?"), agent("Yes."), user("And until when?"), agent("Until 6 pm.")),
        {"whether it is open": 1, "until when": 1},
        1,
    ),
    Case(
        "the second request was passed over",
        talk(
            ASK_RAIN, agent("", RAIN), result("Dry."), agent("No."), user("And on Sunday?"), agent("Have a nice trip!")
        ),
        {"rain on Friday": 1, "rain on Sunday": 0},
        0.5,
    ),
    Case(
        "a request that was taken back is no part",
        talk(user("Book a table and a taxi."), agent("Both?"), user("No taxi, please."), agent("The table is booked.")),
        {"book a table": 1},
        1,
    ),
]

CASES: dict[str, list[Case]] = {
    "tool_selection": SELECTION,
    "tool_arguments": ARGUMENTS,
    "step_efficiency": EFFICIENCY,
    "error_recovery": RECOVERY,
    "plan_adherence": PLAN,
    "answer_completeness": COMPLETENESS,
}
