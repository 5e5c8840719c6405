"""The trading committee of trading.helix, written in Python: the same plan. Two loops make its sixteen branches.

This file takes the place of trading.helix in the commands at the head of that.
"""

from __future__ import annotations

from typing import Literal

import helix as hx

main = hx.model(temperature=0, max_tokens=60)

RULES = """\
You work for the Larkspur Fund, which holds twenty to thirty companies for three to seven years.
House rules:
1. The fund never borrows, never sells short, and holds no more than eight percent in one company.
2. A figure is quoted as it stands in the sheet. Nobody rounds, and nobody adds a figure that is not in the sheet.
3. A company is judged by what it can earn in five years, not by what its share did last week.
4. Debt above three times the yearly profit before interest needs a reason. Without one it is a no.
5. Rumours are named as rumours. What a company says of itself is named as such.
6. Whoever disagrees says so in the first sentence and gives one reason.
7. When two things of equal weight speak against each other, the fund waits.
Answers are one sentence, in plain words, without advice to the reader."""

VIEWS = {
    "growth": "Look at growth: what could be larger in two years than today?",
    "value": "Look at value: what does one pay, and what does one get for it?",
    "risk": "Look at risk: what could go wrong, and how bad would it be?",
    "timing": "Look at timing: what speaks for now, and what for waiting?",
}

ATTITUDES = ["bold", "careful", "neutral"]


@hx.workflow
def trading(ticker: str, company: str, figures: dict, prices: dict, headlines: list[str], posts: list[str]):
    rules = hx.let(RULES)
    views = {view: hx.let(question, name=view) for view, question in VIEWS.items()}
    desks = {
        "fundamental": (
            "You are the fundamental analyst: you read the accounts.",
            f"Revenue: {figures.revenue}\nMargin: {figures.margin}\n"
            f"Debt: {figures.debt}\nPrice to profit: {figures.pe}",
        ),
        "technical": (
            "You are the technical analyst: you read the chart.",
            f"Price: {prices.last}\nRange of a year: {prices.range}\nTrend: {prices.trend}\nVolume: {prices.volume}",
        ),
        "news": (
            "You are the news analyst: you read the papers.",
            f"Headlines:\n{hx.join(headlines, chr(10))}",
        ),
        "sentiment": (
            "You are the sentiment analyst: you read what people write about the company.",
            f"Posts:\n{hx.join(posts, chr(10))}",
        ),
    }
    said = []
    for desk, (duty, sheet) in desks.items():
        for view, question in views.items():
            note = main(
                system=f"{rules}\n{duty}",
                user=f"{ticker}, {company}\n{sheet}\n{question}",
                name=f"{desk}_{view}",
            )
            said.append(f"{desk}, {view}: " + note)
    notes = hx.step(said)
    findings = hx.step(hx.join(notes, "\n"))

    @hx.repeat(up_to=2, talk="")
    def debate(talk):
        bull = main(
            system=f"{rules}\nYou are the researcher who speaks for buying.",
            user=f"{ticker}\nFindings:\n{findings}\nSo far:{talk}\nYour argument:",
        )
        bear = main(
            system=f"{rules}\nYou are the researcher who speaks against buying.",
            user=f"{ticker}\nFindings:\n{findings}\nSo far:{talk}\nFor: {bull}\nYour argument:",
        )
        return {"bull": bull, "bear": bear, "talk": talk + "\nFor: " + bull + "\nAgainst: " + bear}

    proposal = main(
        system=f"{rules}\nYou are the trader. Propose buy, hold or sell and a share of the fund in percent.",
        user=f"{ticker}, last price {prices.last}\nDebate:{debate.talk}",
    )

    @hx.map(over=ATTITUDES)
    def opinions(attitude):
        opinion = main(
            system=f"{rules}\nYou are a {attitude} risk manager.",
            user=f"{ticker}\nProposal: {proposal}\nDebate:{debate.talk}\nYour opinion:",
        )
        return opinion

    decision = main(
        system=f"{rules}\nYou are the fund manager. Decide. Reply with JSON: "
        '{"action": "buy", "hold" or "sell", "percent": a number, "reason": "..."}.',
        user=f"{ticker}\nProposal: {proposal}\nRisk managers:\n{hx.join(opinions, chr(10))}",
        returns={"action": Literal["buy", "hold", "sell"], "percent": float, "reason": str},
        max_tokens=150,
    )
    return hx.output(
        ticker,
        action=decision.action,
        percent=decision.percent,
        reason=decision.reason,
        opinions=opinions,
    )
