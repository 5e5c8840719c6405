"""What a SQL query may be made of, to be no more than a query: parts of sqlglot's tree, and functions by name.

Lists of what is allowed, never of what is not: what a later version of a database or of sqlglot adds is unknown until
somebody has looked at it. No function here writes, locks, waits, or reaches for a file or an address.
"""

from __future__ import annotations

from typing import Final

from helix.services import Effects


def names_in(text: str) -> frozenset[str]:
    """The names in a text, parted by white space."""
    return frozenset(text.split())


# Roots of a statement that asks.
QUERIES: Final = frozenset(("Select", "Union", "Except", "Intersect", "Subquery", "Values"))

STRUCTURE: Final = names_in(
    """
    Add Adjacent Alias Aliases All And Any ArrayContainsAll ArrayContainedBy AtIndex AtTimeZone Between BitString
    BitwiseAnd BitwiseLeftShift BitwiseNot BitwiseOr BitwiseRightShift BitwiseXor Boolean Bracket ByteString CTE
    CharacterSet Collate Column ColumnDef Condition Connector Cube DPipe DataType DataTypeParam Distance Distinct
    Div Dot EQ Escape Except Extends Fetch Filter From GT GTE Glob Group GroupingSets Having HavingMax HexString
    ILike Identifier IgnoreNulls In IntDiv Intersect Interval IntervalSpan Is JSON JSONKeyValue JSONPath
    JSONPathFilter JSONPathKey JSONPathPart JSONPathRecursive JSONPathRoot JSONPathScript JSONPathSelector
    JSONPathSlice JSONPathSubscript JSONPathUnion JSONPathWildcard Join Kwarg LT LTE Lambda Lateral Like Limit
    LimitOptions Literal Match MatchAgainst Mod Mul NEQ National Neg Not Null NullSafeEQ NullSafeNEQ Offset Operator
    Or Order Ordered Overlaps Paren Parameter PartitionBy Pivot PivotAlias PivotAny Placeholder PropertyEQ Qualify
    RawString RespectNulls Returning Rollup Schema Select SimilarTo Slice Star Sub Subquery Table TableAlias
    TableSample Tuple UnicodeString Union UnpivotColumns Values Var Where Window WindowSpec With WithinGroup Xor
    """
)

# sqlglot's own classes of functions.
FUNCTIONS: Final = names_in(
    """
    Abs Acos Acosh AddMonths AnyValue ApproxDistinct ApproxQuantile ArgMax ArgMin Array ArrayAgg ArrayAll ArrayAny
    ArrayAppend ArrayCompact ArrayConcat ArrayConcatAgg ArrayContains ArrayDistinct ArrayExcept ArrayFilter
    ArrayFirst ArrayInsert ArrayIntersect ArrayLast ArrayMax ArrayMin ArrayOverlaps ArrayPosition ArrayPrepend
    ArrayRemove ArrayRemoveAt ArrayReverse ArraySize ArraySlice ArraySort ArraySum ArrayToString ArrayUnionAgg
    ArrayUniqueAgg ArraysZip Ascii Asin Asinh Atan Atan2 Atanh Avg Base64DecodeBinary Base64DecodeString
    Base64Encode BitLength BitwiseAndAgg BitwiseCount BitwiseOrAgg BitwiseXorAgg Booland Boolnot Boolor ByteLength
    Case Cast CastToStrType Cbrt Ceil Chr Coalesce Concat ConcatWs Contains Convert ConvertTimezone Corr Cos Cosh
    CosineDistance Cot Coth Count CountIf CovarPop CovarSamp Csc Csch CumeDist CurrentCatalog CurrentDatabase
    CurrentRole CurrentSchema CurrentUser Date DateAdd DateBin DateDiff DateFromParts DateFromUnixDate DateStrToDate
    DateSub DateToDateStr DateToDi DateTrunc Datetime DatetimeAdd DatetimeDiff DatetimeSub DatetimeTrunc Day
    DayOfMonth DayOfWeek DayOfWeekIso DayOfYear Dayname Decode DecodeCase Degrees DenseRank DiToDate DotProduct Elt
    Encode EndsWith EqualNull EuclideanDistance Exists Exp Explode ExplodingGenerateSeries Extract Factorial First
    FirstValue Flatten Float64 Floor Format FromBase FromBase32 FromBase64 GenerateDateArray GenerateSeries
    GenerateTimestampArray Getbit Greatest GroupConcat Grouping GroupingId Hex HexDecodeString Hour If Initcap
    Inline Int64 IsArray IsAscii IsInf IsNan IsNullValue JSONArray JSONArrayAgg JSONArrayAppend JSONArrayContains
    JSONArrayInsert JSONBContains JSONBContainsAllTopKeys JSONBContainsAnyTopKeys JSONBContainsTopKey
    JSONBDeleteAtPath JSONBExists JSONBExtract JSONBExtractScalar JSONBObjectAgg JSONBPathExists JSONBool JSONCast
    JSONExists JSONExtract JSONExtractArray JSONExtractScalar JSONFormat JSONKeys JSONObject JSONObjectAgg
    JSONRemove JSONSet JSONStripNulls JSONTable JSONType JSONValueArray JarowinklerSimilarity JustifyDays
    JustifyHours JustifyInterval Kurtosis Lag Last LastDay LastValue Lead Least Left Length Levenshtein List Ln Log
    LogicalAnd LogicalOr Lower LowerHex MD5 MD5Digest MakeInterval ManhattanDistance Map MapCat MapContainsKey
    MapFromEntries MapKeys MapSize Max Median Min Minute Mode Month Monthname MonthsBetween Nanvl Negative Normalize
    NthValue Ntile Nullif NumberToStr Nvl2 ObjectAgg Overlay Pad ParseDatetime ParseJSON ParseTime PercentRank
    PercentileCont PercentileDisc Pi Posexplode Pow Quantile Quarter Radians Rank RegexpCount RegexpExtract
    RegexpExtractAll RegexpFullMatch RegexpILike RegexpInstr RegexpLike RegexpReplace RegexpSplit RegexpSubstr
    RegrAvgx RegrAvgy RegrCount RegrIntercept RegrR2 RegrSlope RegrSxx RegrSxy RegrSyy Repeat Replace Reverse Right
    Rint Round RowNumber SHA SHA1Digest SHA2 SHA2Digest SafeAdd SafeDivide SafeMultiply SafeNegate SafeSubtract Sec
    Sech Second Sign Sin Sinh Skewness Soundex Space Split SplitPart Sqrt StartsWith Stddev StddevPop StddevSamp
    StrPosition StrToDate StrToMap StrToTime StrToUnix String StringToArray Strtok StrtokToArray Struct
    StructExtract Stuff Substring SubstringIndex Sum Tan Tanh Time TimeAdd TimeDiff TimeFromParts TimeStrToDate
    TimeStrToTime TimeStrToUnix TimeSub TimeToStr TimeToTimeStr TimeToUnix TimeTrunc Timestamp TimestampAdd
    TimestampDiff TimestampFromParts TimestampSub TimestampTrunc Transform ToArray ToBase32 ToBase64 ToBinary
    ToBoolean ToChar ToDays ToDouble ToMap ToNumber Translate Trim Trunc Try TryCast TsOrDiToDi TsOrDsAdd TsOrDsDiff
    TsOrDsToDate TsOrDsToDateStr TsOrDsToDatetime TsOrDsToTime TsOrDsToTimestamp Typeof Unhex Unicode UnixDate
    UnixMicros UnixMillis UnixSeconds UnixToStr UnixToTime UnixToTimeStr Unnest Upper VarMap Variance VariancePop
    Week WeekOfYear WidthBucket Xor Year YearOfWeek YearOfWeekIso
    """
)

# Those that give another result each time, and change nothing.
VOLATILE: Final = names_in(
    """
    CurrentDate CurrentDatetime CurrentTime CurrentTimestamp CurrentTimestampLTZ Localtime Localtimestamp Rand Randn
    Systimestamp TableSample UtcDate UtcTime UtcTimestamp Uuid
    """
)

# Functions that sqlglot has no class for, as they are called.
NAMED: Final = names_in(
    """
    abs acos age array_agg array_cat array_contains array_length array_lower array_ndims array_position array_remove
    array_to_json array_to_string array_upper asin atan atan2 avg bit_count bit_length btrim cardinality ceil
    ceiling char char_length character_length charindex chr coalesce concat concat_ws contains cos cot count
    cume_dist current_catalog current_database current_schema date date_add date_diff date_format date_part date_sub
    date_trunc datediff datename datepart datetime day dayname dayofmonth dayofweek dayofyear degrees dense_rank
    element_at ends_with epoch epoch_ms exp extract field find_in_set first first_value flatten floor format
    format_bytes from_days from_unixtime generate_series generate_subscripts glob greatest group_concat hex hour iif
    ifnull inet_aton inet_ntoa initcap instr isdate isfinite isnull isnumeric json json_agg json_array
    json_array_elements json_array_elements_text json_array_insert json_array_length json_build_array
    json_build_object json_contains json_contains_path json_depth json_each json_each_text json_extract
    json_extract_path json_extract_path_text json_extract_string json_extract_text json_group_array
    json_group_object json_insert json_keys json_length json_object json_object_agg json_object_keys json_overlaps
    json_patch json_pretty json_quote json_remove json_replace json_search json_set json_structure json_transform
    json_tree json_type json_typeof json_unquote json_valid json_value jsonb jsonb_agg jsonb_array_elements
    jsonb_array_elements_text jsonb_array_length jsonb_build_array jsonb_build_object jsonb_each jsonb_each_text
    jsonb_extract_path jsonb_extract_path_text jsonb_object_agg jsonb_object_keys jsonb_path_exists jsonb_path_query
    jsonb_path_query_array jsonb_path_query_first jsonb_pretty jsonb_set jsonb_typeof julianday lag last last_day
    last_value lcase lead least left len length like likelihood likely list list_aggregate list_apply list_contains
    list_distinct list_extract list_filter list_has list_position list_reverse list_slice list_sort list_sum
    list_transform list_unique list_value ln locate log log10 log2 lower lpad ltrim make_date make_interval
    make_time make_timestamp makedate maketime map map_extract map_keys map_values max md5 median microsecond mid
    min minute mod mode month monthname nth_value ntile nullif num_nonnulls num_nulls numnode octet_length ord
    parse_ident patindex percent_rank percentile_cont percentile_disc period_add period_diff pi plainto_tsquery
    position pow power pragma_foreign_key_list pragma_index_info pragma_index_list pragma_index_xinfo
    pragma_table_info pragma_table_list pragma_table_xinfo printf quarter quote quote_ident quote_literal quotename
    radians range rank regexp_extract regexp_extract_all regexp_full_match regexp_instr regexp_like regexp_match
    regexp_matches regexp_replace regexp_split_to_array regexp_split_to_table regexp_substr repeat replace replicate
    reverse right round row_number row_to_json rpad rtrim sec_to_time second sha1 sha2 sha256 sign similarity sin
    sinh soundex space split_part sqrt starts_with stddev str str_split str_to_date strcmp strftime string_agg
    string_split string_to_array string_to_table strip_accents strlen strpos strptime struct_extract struct_pack
    stuff substr substring substring_index subtime subtype sum tan tanh time time_to_sec timediff timestampdiff
    to_base64 to_char to_date to_days to_hex to_json to_jsonb to_number to_seconds to_timestamp to_tsquery
    to_tsvector total translate trim trunc truncate ts_headline ts_rank ts_rank_cd typeof ucase unhex unicode unistr
    unixepoch unlikely unnest upper variance websearch_to_tsquery week weekday weekofyear width_bucket year yearweek
    zeroblob
    """
)

# Functions that may stand where a table may, by sqlglot's class and by name: others there often read files.
ROW_FUNCTIONS: Final = names_in(
    """
    Explode ExplodingGenerateSeries GenerateSeries Inline JSONTable Posexplode Unnest
    """
)
ROW_NAMES: Final = names_in(
    """
    generate_series generate_subscripts json_array_elements json_array_elements_text json_each json_each_text
    json_object_keys json_tree jsonb_array_elements jsonb_array_elements_text jsonb_each jsonb_each_text
    jsonb_object_keys jsonb_path_query pragma_foreign_key_list pragma_index_info pragma_index_list
    pragma_index_xinfo pragma_table_info pragma_table_list pragma_table_xinfo range regexp_split_to_table
    string_split string_to_table unnest
    """
)

# Those of them that tell the time when they are given no point in it, or with fewer arguments than these.
TIMES: Final = {
    "age": 2, "date": 1, "datetime": 1, "julianday": 1, "strftime": 2, "time": 1, "timediff": 2, "unixepoch": 1,
}  # fmt: skip
# Called by these names they tell chance or the clock, or what the connection did.
NAMED_VOLATILE: Final = names_in(
    """
    changes clock_timestamp gen_random_uuid get_current_time get_current_timestamp getdate getutcdate
    last_insert_rowid localtime localtimestamp newid now random randomblob statement_timestamp sysdate sysdatetime
    sysutcdatetime timeofday today total_changes transaction_timestamp unix_timestamp utc_date utc_time
    utc_timestamp uuid uuid_generate_v4 uuidv4 uuidv7 current_date current_time current_timestamp curdate curtime
    """
)
# What a text says for the time of the call, where it is read as a point in time.
NOW: Final = frozenset(("now", "today", "tomorrow", "yesterday", "subsec", "subsecond"))

# Words that a statement begins with which writes: its class, whatever follows.
WRITES: Final[dict[str, Effects]] = {
    "INSERT": "write", "CREATE": "write", "UPDATE": "destructive", "DELETE": "destructive", "MERGE": "destructive",
    "REPLACE": "destructive", "DROP": "destructive", "ALTER": "destructive", "TRUNCATE": "destructive",
    "COPY": "destructive",
}  # fmt: skip
