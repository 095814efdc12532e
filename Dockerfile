# The planner as an image: `docker build --target core -t shardplan .`, and `--target extras` for reports, charts,
# profiles and studies on many processes. How it is used: docs/how-to/ci.md.
FROM python:3.11-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY topologies topologies
COPY cost_models cost_models
COPY planner planner
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.11-slim AS core
COPY --from=build /wheels /wheels
COPY locks /locks
RUN pip install --no-cache-dir --require-hashes -r /locks/core.txt
RUN pip install --no-cache-dir --no-deps /wheels/shardplan-*.whl
RUN useradd --create-home planner
USER planner
WORKDIR /plans
ENTRYPOINT ["planner"]
CMD ["--help"]

FROM core AS extras
USER 0
RUN pip install --no-cache-dir --require-hashes -r /locks/extras.txt
USER planner
