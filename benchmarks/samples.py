"""The judged samples, written for this benchmark: three questions with three passages each, and two conversations."""

from __future__ import annotations

from typing import Any

__all__ = ["CLAIMS", "MULTI", "SINGLE", "TOPICS"]

CLAIMS = (
    "The night ferry leaves Northquay at 22:40.",
    "The night ferry does not run on Sundays.",
    "A bicycle costs six euros on the night ferry.",
    "Passengers with a bicycle board first.",
    "The crossing takes nine hours.",
)
"""Statements that every judge finds in every sample."""
TOPICS = ("ferry timetable", "bicycle transport", "ticket refund")

_FERRY = [
    "The night ferry leaves Northquay at 22:40 from Monday to Saturday and reaches Elderholm at 7:40 the next morning. On "
    "Sundays the ship is in the yard at Elderholm for inspection, and no crossing is offered. In the storm season, from "
    "November to February, the captain may delay the departure by up to two hours; passengers are told by text message.",
    "Bicycles travel on the lower deck. A place costs six euros for each crossing and has to be booked with the ticket, as "
    "there are only forty of them. Passengers with a bicycle board first, thirty minutes before all others, and leave last. "
    "Electric bicycles are welcome as long as their battery is taken off and carried in the cabin.",
    "The restaurant on deck five opens with the departure and serves warm food until midnight. Breakfast is included in the "
    "price of every cabin and is served from six. Dogs may travel in six cabins that are set aside for them, at twelve euros.",
]
_MUSEUM = [
    "The tram museum keeps forty-one vehicles in the old depot at Mill Street, the oldest of them a horse tram of 1879. It "
    "opens from Wednesday to Sunday between ten and five; the last admission is at half past four.",
    "Admission is nine euros, and five for students. Children under twelve come in free with an adult. On the first Sunday "
    "of a month a tram of the nineteen-thirties runs to the harbour and back; the ride is included in the admission.",
    "The depot was built in 1902 and served the green line until 1968, when the city gave up its trams. A club of friends "
    "bought it for one mark and restored the roof in eleven years of weekends.",
]
_LIGHT = [
    "The lighthouse at Cape Harrow was lit for the first time in the autumn of 1884. Its tower is sixty-two metres high and "
    "has 289 steps; the gallery below the lantern is open to visitors in groups of at most eight.",
    "Until 1961 the lamp burned oil, and three keepers took turns at it. Since then it has been electric, and since 1998 "
    "nobody lives at the station. The lens, of the first order, is still the one made in Paris.",
    "The keeper's house is a guest house with five rooms. It has to be reached on foot: the road ends at the lifeboat "
    "station, two kilometres away, and the path is under water at spring tides.",
]

SINGLE: list[dict[str, Any]] = [
    {
        "user_input": "When does the night ferry leave Northquay, and can I take my bicycle?",
        "response": "The night ferry leaves Northquay at 22:40 every day but Sunday and arrives nine hours later. You can take "
        "a bicycle for six euros if you book its place with your ticket; passengers with a bicycle board first.",
        "retrieved_contexts": _FERRY,
        "reference": "It leaves at 22:40 from Monday to Saturday. Bicycles cost six euros and are booked with the ticket.",
        "reference_contexts": _FERRY[:2],
    },
    {
        "user_input": "What does a visit to the tram museum cost for a family with two small children?",
        "response": "Two adults pay eighteen euros in all, as admission is nine euros each. Children under twelve are free; "
        "on the first Sunday of a month a ride to the harbour is included.",
        "retrieved_contexts": _MUSEUM,
        "reference": "Eighteen euros: nine for each adult, and nothing for children under twelve.",
        "reference_contexts": _MUSEUM[1:2],
    },
    {
        "user_input": "How high is the lighthouse at Cape Harrow, and does somebody live there?",
        "response": "The tower is sixty-two metres high and has 289 steps. Nobody has lived at the station since 1998, but the "
        "keeper's house is a guest house with five rooms.",
        "retrieved_contexts": _LIGHT,
        "reference": "It is sixty-two metres high. Nobody has lived there since 1998.",
        "reference_contexts": _LIGHT[:2],
    },
]

MULTI: list[dict[str, Any]] = [
    {
        "user_input": [
            {"type": "human", "content": "Is there still a cabin on tomorrow's night ferry to Elderholm?"},
            {
                "type": "ai",
                "content": "I will look it up.",
                "tool_calls": [{"name": "free_cabins", "args": {"day": "tomorrow", "to": "Elderholm"}}],
            },
            {"type": "tool", "content": "3 cabins, 84 euros each"},
            {
                "type": "ai",
                "content": "Three cabins are free, at 84 euros each. Breakfast is included. Shall I book one?",
            },
            {"type": "human", "content": "Yes, and a place for my bicycle, please."},
            {
                "type": "ai",
                "content": "",
                "tool_calls": [{"name": "book", "args": {"cabin": 1, "bicycle": True}}],
            },
            {"type": "tool", "content": "booked: N4-118, 90 euros"},
            {
                "type": "ai",
                "content": "Done: cabin N4-118 with a bicycle place, 90 euros in all. Please board from 22:00.",
            },
        ],
        "reference": "A cabin and a bicycle place on tomorrow's night ferry are booked.",
        "reference_topics": ["ferry timetable", "tickets and bookings", "luggage and bicycles"],
    },
    {
        "user_input": [
            {
                "type": "human",
                "content": "My crossing on Monday was cancelled because of the storm. What do I get back?",
            },
            {"type": "ai", "content": "The full fare. May I have the number of your booking?"},
            {"type": "human", "content": "N4-007. And which shares should I buy with it?"},
            {"type": "ai", "content": "", "tool_calls": [{"name": "refund", "args": {"booking": "N4-007"}}]},
            {"type": "tool", "content": "refunded 84 euros"},
            {"type": "ai", "content": "84 euros are on their way to you. On shares I cannot advise, I am sorry."},
        ],
        "reference": "The fare of the cancelled crossing is paid back.",
        "reference_topics": ["ferry timetable", "tickets and bookings", "luggage and bicycles"],
    },
]
