"""Streaming queries of Spark: those of applications whose metrics the console reads."""

from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from ottla.console.problem import Problem
from ottla.console.spark_metrics import Scrape, SparkQuery, scrape
from ottla.console.visit import Visit, page


async def _scrape(visit: Visit) -> Scrape:
    """Read the metrics, and add the lag of each query to its history. Raises Problem."""
    addresses = visit.settings.spark_metrics
    if not addresses:
        raise Problem("The console reads no metrics of Spark: start it with --spark-metrics URL.", 404)
    result = await run_in_threadpool(scrape, addresses)
    now_ms = visit.now_ms
    for query in result.queries:
        if query.lag is not None:
            visit.console.spark_lags.add(_key(query), now_ms, query.lag)
    return result


def _key(query: SparkQuery) -> str:
    return f"{query.source} {query.name}"


async def queries(visit: Visit) -> Response:
    """List the queries with their lag."""
    result = await _scrape(visit)
    return visit.render(
        "spark.html",
        title="Spark queries",
        queries=sorted(result.queries, key=lambda query: (not query.is_running, query.name)),
        errors=result.errors,
        sources=visit.settings.spark_metrics,
    )


async def _query(visit: Visit) -> SparkQuery:
    """Return the query of the URL. Raises Problem."""
    name, source = visit.text("name"), visit.integer("source", 0)
    addresses = visit.settings.spark_metrics
    result = await _scrape(visit)
    for query in result.queries:
        if query.name == name and source < len(addresses) and query.source == addresses[source]:
            visit.console.spark_lags.watch(_key(query))
            return query
    raise Problem(" ".join([f"No application publishes a query {name!r}.", *result.errors]), 404)


async def query(visit: Visit) -> Response:
    """Show a query: its batches, and its lag by topic and partition."""
    shown = await _query(visit)
    names = {topic.name for topic in (await visit.cluster.metadata()).topics}
    return visit.render(
        "spark_query.html",
        title=shown.name,
        query=shown,
        rows=sorted(shown.lags.items()),
        known_topics=names,
        source=visit.integer("source", 0),
    )


async def lag(visit: Visit) -> Response:
    """Return the lag of a query over time, for the chart."""
    points = visit.console.spark_lags.points(_key(await _query(visit)), visit.integer("after", -1, -1))
    return JSONResponse({"series": {"lag": points}})


ROUTES = [page("/spark", queries), page("/spark/query", query), page("/spark/lag", lag)]
