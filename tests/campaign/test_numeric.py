from campaign.numeric import check_numbers


def test_values_at_the_limits_give_the_right_result_or_one_line() -> None:
    lines: list[str] = []
    result = check_numbers(0, lines.append)
    assert lines == []
    assert not result.findings
    assert sum(row["cases"] for row in result.counts) > 100
